"""Lines that are no single record: what is whole is read, what is not is one bad piece with its place."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.landing import jsonl
from pipelines.landing.decoding import decode, exact, normalised, written
from pipelines.landing.format import BadRecord, Piece, SourceRecord, Unfinished
from pipelines.landing.recorder import Recorder
from tests.landing.lines import call, line, write_lines


def split(tmp_path: Path, *lines: bytes) -> list[Piece]:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines))
    content, pieces = path.read_bytes(), list(Recorder().split(path))
    for piece in pieces:
        if isinstance(piece, BadRecord):
            assert content[piece.byte_start : piece.byte_end] == piece.raw
        elif isinstance(piece, SourceRecord):
            assert orjson.loads(content[piece.byte_start : piece.byte_end]) == piece.value
            assert piece.line == content.count(b"\n", 0, piece.byte_start) + 1
    return pieces


def calls(pieces: list[Piece]) -> list[str]:
    return [piece.value["call_id"] for piece in pieces if isinstance(piece, SourceRecord)]


def bad(pieces: list[Piece]) -> list[BadRecord]:
    return [piece for piece in pieces if isinstance(piece, BadRecord)]


def bare(number: int) -> bytes:
    return line(call(number))[:-1]


@pytest.mark.parametrize("between", [b"", b" ", b",", b"\r", b"\t, "])
def test_any_number_of_records_on_one_line(tmp_path: Path, between: bytes) -> None:
    pieces = split(tmp_path, between.join(bare(number) for number in range(5)) + b"\n", line(call(5)))
    assert (calls(pieces), bad(pieces)) == ([f"call-{number}" for number in range(6)], [])


def test_torn_and_whole_records_in_any_order_on_one_line(tmp_path: Path) -> None:
    torn = bare(9)[:300]
    pieces = split(tmp_path, torn + bare(1) + bare(2) + torn + bare(3) + torn + b"\n", line(call(4)))
    assert calls(pieces) == ["call-1", "call-2", "call-3", "call-4"]
    assert [piece.raw for piece in bad(pieces)] == [torn, torn, torn]


@pytest.mark.parametrize("cut", [1, 2, 5, 14, 40, 200, 333, 500, 700])
def test_a_partial_record_followed_by_the_complete_one(tmp_path: Path, cut: int) -> None:
    pieces = split(tmp_path, bare(1)[:cut] + line(call(1)), line(call(2)))
    assert calls(pieces) == ["call-1", "call-2"]
    (torn,) = bad(pieces)
    assert (torn.line, torn.byte_start, torn.byte_end) == (1, 0, cut)


def test_runs_of_nul_bytes_cost_no_whole_record(tmp_path: Path) -> None:
    nuls = bytes(4096)
    pieces = split(
        tmp_path, nuls + line(call(1)), bare(2)[:50] + nuls + bare(2)[90:] + nuls + line(call(3)), nuls + b"\n", line(call(4))
    )
    assert calls(pieces) == ["call-1", "call-3", "call-4"]
    assert [(piece.line, len(piece.raw.strip(b"\0"))) for piece in bad(pieces)] == [(1, 0), (2, 4146 + len(bare(2)) - 90), (3, 0)]
    assert "4096 NUL bytes" in bad(pieces)[0].detail


def test_an_object_inside_a_torn_record_is_no_record(tmp_path: Path) -> None:
    outer = json.dumps({"other": [call(1)]}).encode()[:-2]
    pieces = split(tmp_path, outer + b', "more": {"a": 1}\n', line(call(2)))
    assert calls(pieces) == ["call-2"]
    assert len(bad(pieces)) == 1


def test_one_that_is_no_record_among_several_costs_itself(tmp_path: Path) -> None:
    pieces = split(tmp_path, bare(1) + b'{"recorder": 1, "kind": "other"}' + bare(2) + b"\n")
    assert calls(pieces) == ["call-1", "call-2"]
    assert [piece.reason for piece in bad(pieces)] == ["wrong_shape"]


def test_bad_utf8_costs_its_own_record_on_the_line(tmp_path: Path) -> None:
    pieces = split(tmp_path, bare(1) + bare(2).replace(b"order_desk", b"\xff") + bare(3) + b"\n")
    assert calls(pieces) == ["call-1", "call-3"]
    assert [piece.reason for piece in bad(pieces)] == ["bad_utf8"]


def test_nesting_of_ten_thousand_levels_costs_one_line(tmp_path: Path) -> None:
    deep = line(call(1)).replace(b'"tools": null', b'"tools": ' + b'[{"a":' * 5000 + b"1" + b"}]" * 5000)
    pieces = split(tmp_path, line(call(0)), deep, line(call(2)))
    assert calls(pieces) == ["call-0", "call-2"]
    assert len(bad(pieces)) == 1


@pytest.mark.parametrize("depth", [100, 200, 300, 900, 1023, 5000])
def test_what_is_taken_can_be_written_again(tmp_path: Path, depth: int) -> None:
    deep = line(call(1)).replace(b'"tools": null', b'"tools": ' + b"[" * depth + b"]" * depth)
    (piece,) = split(tmp_path, deep)
    assert isinstance(piece, SourceRecord if depth <= 200 else BadRecord)
    if isinstance(piece, SourceRecord):
        orjson.dumps([[piece.value]])


def test_a_line_of_many_megabytes(tmp_path: Path) -> None:
    long = call(1, request={"messages": [{"role": "user", "content": "long " * 2_000_000}]})
    pieces = split(tmp_path, line(call(0)), line(long), line(call(2)))
    assert calls(pieces) == ["call-0", "call-1", "call-2"]


def test_a_line_beyond_the_limit_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 4000)
    monkeypatch.setattr(jsonl, "KEPT_OF_LONG", 100)
    path = write_lines(
        tmp_path / "log.jsonl", [call(1), b"x" * 5_000_000 + b"\n", b"x" * 5_000_001 + b"\n", call(2), b"y" * 9000]
    )
    first, long, longer, second, unfinished = list(Recorder().split(path))
    assert isinstance(first, SourceRecord) and isinstance(second, SourceRecord) and isinstance(unfinished, Unfinished)
    assert isinstance(long, BadRecord) and isinstance(longer, BadRecord)
    assert (long.reason, long.line, long.byte_end - long.byte_start, len(long.raw)) == ("too_long", 2, 5_000_000, 100)
    assert long.raw == longer.raw and long.digest != longer.digest
    assert (second.line, second.byte_start) == (4, longer.byte_end + 1)


def test_numbers_keep_their_digits_and_doubled_keys_stay() -> None:
    raw = b'{ "a" : 1180591620717411303424, "b": 1.10, "a": [ 1E5, -0.0 ], "c": "\\u00e9\\/\\n" }'
    value, content = decode(raw)
    assert content == '{"a":1180591620717411303424,"b":1.10,"a":[1E5,-0.0],"c":"é/\\n"}'.encode()
    assert value == {"a": [1e5, -0.0], "b": 1.1, "c": "é/\n"}
    assert written(exact(b'{"n":1180591620717411303424,"m":1}')) == '{"n":1180591620717411303424,"m":1}'


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    ),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
)
def test_normalised_bytes_do_not_depend_on_white_space_and_escapes(value: object, ascii: bool, indent: int | str | None) -> None:
    try:
        raw = json.dumps(value, ensure_ascii=ascii, indent=indent).encode()
    except UnicodeEncodeError:
        return
    assert normalised(raw) == orjson.dumps(value)
