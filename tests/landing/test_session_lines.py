"""Lines that are stored with the session that only their file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.landing.decoding import Facts
from pipelines.landing.format import SourceRecord
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import header, in_order, placed, split_placed, unnamed
from tests.landing.formats.test_codex_cli import FORMAT
from tests.landing.lines import line, stored, write_lines


def values(path: Path, start: int = 0) -> list[dict[str, Any]]:
    facts = placed(lambda row: Facts(time=checked_moment(row.get("timestamp"))), "s1", kind="main")
    pieces = list(split_placed(path, start, facts))
    assert all(isinstance(piece, SourceRecord) and piece.bundle_ref == "s1" and piece.text is None for piece in pieces)
    return [piece.value for piece in pieces if isinstance(piece, SourceRecord)]


def test_lines_keep_their_order_by_time_and_turn(tmp_path: Path) -> None:
    at = "2026-11-20T10:00:00Z"
    rows: list[dict[str, Any]] = [
        {"a": 1},
        {"a": 1},
        {"timestamp": at},
        {"timestamp": at, "a": 2},
        {"timestamp": at},
        {"a": 3},
        {"a": 3},
    ]
    read = values(write_lines(tmp_path / "log.jsonl", rows))
    assert [value["tie"] for value in read] == [0, 1, 0, 1, 0, 2, 3]
    assert [value["at"] for value in read] == [None, None, *["2026-11-20T10:00:00.000000+00:00"] * 5]
    assert {(value["session"], value["kind"]) for value in read} == {("s1", "main")}


def test_reading_on_from_the_middle_gives_the_same(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": 2}]
    path = write_lines(tmp_path / "log.jsonl", rows)
    assert values(path, len(line(rows[0]))) == values(path)[1:]


def test_a_header_is_found_behind_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"type": "x", "te' + line({"id": "s1"}) + line({"id": "s2"}))
    assert header(path, lambda row: "id" in row) == {"id": "s1"}
    assert header(path, lambda row: "name" in row) == {}


def test_a_file_without_a_name_is_named_by_its_first_line(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [{"a": 1}])
    assert unnamed(first) == unnamed(write_lines(tmp_path / "b.jsonl", [{"a": 1}, {"a": 2}]))
    assert unnamed(first) != unnamed(write_lines(tmp_path / "c.jsonl", [{"a": 2}]))


def test_order_is_that_of_the_places_whatever_the_order_of_records() -> None:
    held = [
        {"session": "s", "at": at, "tie": tie, "row": {"type": "turn_context", "payload": {}}}
        for at, tie in (("2", 1), ("2", 0), (None, 3), ("1", 9))
    ]
    assert [(record.value["at"], record.value["tie"]) for record in in_order(stored(FORMAT, *held))] == [
        (None, 3),
        ("1", 9),
        ("2", 0),
        ("2", 1),
    ]
