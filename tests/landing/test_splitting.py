"""Where records begin and end: JSONL by the byte \\n alone, arrays by their brackets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.landing.format import BadRecord, SourceRecord, Unfinished
from pipelines.landing.recorder import Recorder
from pipelines.landing.tau_bench import TauBench
from tests.landing.lines import call, item, line, write_lines


def test_every_piece_says_where_it_stands(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1), b"\n", b"  \r\n", b"{torn\n", call(2)])
    content = path.read_bytes()
    first, bad, last = list(Recorder().split(path))
    assert isinstance(first, SourceRecord) and isinstance(bad, BadRecord) and isinstance(last, SourceRecord)
    assert [piece.line for piece in (first, bad, last)] == [1, 4, 5]
    assert content[bad.byte_start : bad.byte_end] == b"{torn" == bad.raw
    assert bad.reason == "bad_json"
    assert json.loads(content[last.byte_start : last.byte_end]) == call(2)
    resumed = list(Recorder().split(path, bad.byte_end, bad.line))
    assert resumed == [last]


def test_only_the_byte_10_ends_a_line(tmp_path: Path) -> None:
    value = call(1)
    value["response"]["message"]["content"] = "one\u2028two\u2029three\x85four\x0bfive"
    path = tmp_path / "log.jsonl"
    path.write_bytes(json.dumps(value, ensure_ascii=False).encode() + b"\r\n" + line(call(2)))
    pieces = list(Recorder().split(path))
    assert [piece.value for piece in pieces if isinstance(piece, SourceRecord)] == [value, call(2)]


def test_a_last_line_is_taken_when_it_is_whole_and_waits_when_it_is_not(tmp_path: Path) -> None:
    whole = line(call(2))[:-1]
    path = tmp_path / "log.jsonl"
    path.write_bytes(line(call(1)) + whole[:-1])
    assert list(Recorder().split(path))[1:] == [Unfinished(line=2, byte_start=len(line(call(1))))]
    path.write_bytes(line(call(1)) + whole)
    assert [isinstance(piece, SourceRecord) for piece in Recorder().split(path)] == [True, True]


def test_a_record_behind_a_torn_one_on_the_same_line_is_found(tmp_path: Path) -> None:
    torn = line(call(1))[:100]
    path = write_lines(tmp_path / "log.jsonl", [torn + line(call(2)), line(call(3))[:-1] + line(call(4))])
    bad, second, third, fourth = list(Recorder().split(path))
    assert isinstance(bad, BadRecord) and bad.raw == torn
    assert [piece.value for piece in (second, third, fourth) if isinstance(piece, SourceRecord)] == [call(2), call(3), call(4)]
    assert (second.byte_start, third.line) == (100, 2)


def test_bytes_that_are_no_utf8_and_a_byte_order_mark(tmp_path: Path) -> None:
    broken = line(call(1)).replace(b"order_desk", b"order\xffdesk")
    path = write_lines(tmp_path / "log.jsonl", [b"\xef\xbb\xbf" + line(call(0)), broken])
    good, bad = list(Recorder().split(path))
    assert isinstance(good, SourceRecord) and good.byte_start == 3
    assert isinstance(bad, BadRecord) and bad.reason == "bad_utf8"


def test_half_a_surrogate_pair_loses_no_record(tmp_path: Path) -> None:
    cut = line(call(1)).replace(b"Where is", b"\\ud83d is")
    other = line(call(1)).replace(b"Where is", b"\\ud83e is")
    first, second = list(Recorder().split(write_lines(tmp_path / "log.jsonl", [cut, other])))
    assert isinstance(first, SourceRecord) and isinstance(second, SourceRecord)
    assert first.value["request"]["messages"][1]["content"].endswith("\N{REPLACEMENT CHARACTER} is 1?")
    assert first.content != second.content


@pytest.mark.parametrize("indent", [None, 2])
def test_items_of_an_array_say_where_they_stand(tmp_path: Path, indent: int | None) -> None:
    values = [item(number, info={"text": 'a ] } " , [ {', "end": "\\"}) for number in range(5)]
    path = tmp_path / "results.json"
    path.write_text("\n " + json.dumps(values, indent=indent) + "\n", encoding="utf-8")
    content = path.read_bytes()
    pieces = list(TauBench().split(path))
    assert [piece.value for piece in pieces if isinstance(piece, SourceRecord)] == values
    for piece, value in zip(pieces, values, strict=True):
        assert isinstance(piece, SourceRecord)
        assert json.loads(content[piece.byte_start : piece.byte_end]) == value
        assert piece.line == content[: piece.byte_start].count(b"\n") + 1


def test_an_item_that_is_no_json_costs_itself_and_a_torn_one_waits(tmp_path: Path) -> None:
    one, two = json.dumps(item(1)), json.dumps(item(2))
    not_a_number = json.dumps(item(3, reward=float("nan")))
    path = tmp_path / "results.json"
    path.write_text(f"[{one}, {not_a_number}, {two}, {one[:60]}", encoding="utf-8")
    pieces = list(TauBench().split(path))
    assert [type(piece) for piece in pieces] == [SourceRecord, BadRecord, SourceRecord, Unfinished]
    path.write_text(f"[{one}] {two}", encoding="utf-8")
    assert [type(piece) for piece in TauBench().split(path)] == [SourceRecord, SourceRecord]
    path.write_text("[]", encoding="utf-8")
    assert list(TauBench().split(path)) == []
