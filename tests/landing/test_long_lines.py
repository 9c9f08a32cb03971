"""A line as long as a whole file: it lands, or is quarantined with its offsets, and the lines around it land."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.landing.jsonl import LONGEST_LINE
from pipelines.landing.land import land
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, line


def long(number: int, num_bytes: int) -> bytes:
    words = "where is my order? " * (num_bytes // 19)
    return line(call(number, request={"messages": [{"role": "user", "content": words}]}))


@pytest.mark.parametrize(
    "num_bytes",
    [
        pytest.param(10 << 20, id="10 MB"),
        pytest.param(100 << 20, id="100 MB", marks=[pytest.mark.drill, pytest.mark.timeout(600)]),
    ],
)
def test_a_long_line_lands_with_the_lines_around_it(workspace: Workspace, tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "log.jsonl"
    lines = [line(call(1)), long(2, num_bytes), line(call(3)), long(4, num_bytes), line(call(5))]
    path.write_bytes(b"".join(lines))
    landed = land(workspace, [path])
    assert (landed.records, landed.quarantined) == (5, 0)
    rows = workspace.lake.read(RECORDS.name, columns=["line", "byte_start", "byte_end"]).sort_by("line").to_pylist()
    ends = [sum(map(len, lines[: number + 1])) for number in range(5)]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["byte_start"] for row in rows] == [0, *ends[:-1]]
    assert land(workspace, [path]).records == 0


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_a_line_that_is_too_long_is_quarantined_with_its_offsets(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first, last, num_bytes = line(call(1)), line(call(3)), LONGEST_LINE + 100
    with path.open("wb") as stream:
        stream.write(first)
        for _ in range(num_bytes // 100):
            stream.write(b"a" * 100)
        stream.write(b"a" * (num_bytes % 100) + b"\n" + last)
    landed = land(workspace, [path])
    assert (landed.records, landed.quarantined) == (2, 1)
    (row,) = workspace.lake.read(QUARANTINE.name).to_pylist()
    assert (row["reason"], row["line"], row["byte_start"]) == ("too_long", 2, len(first))
    assert row["byte_end"] == len(first) + num_bytes
