"""Any line of a log leads to what became of it: where a record begins, where one goes on, where none is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import log_lines
from pipelines.errors import UnknownReferenceError
from pipelines.ingest import ingest
from pipelines.landing import quarantine
from pipelines.lineage import ask, why
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, item, write_lines


@pytest.fixture
def results(workspace: Workspace) -> Path:
    """Two records of many lines each, with a line before, between and behind them that belongs to none."""
    path = workspace.folder / "logs" / "results.json"
    path.parent.mkdir()
    items = [json.dumps(item(number), indent=2) for number in (1, 2)]
    path.write_text("[\n" + "\n,\n".join(items) + "\n]\n", encoding="utf-8")
    ingest(workspace, [path])
    return path


@pytest.mark.parametrize("block", [1 << 20, 7])
def test_a_line_inside_a_record_leads_to_its_trajectory(
    workspace: Workspace, results: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(log_lines, "BLOCK_BYTES", block)
    first, second = sorted(row["line"] for row in workspace.lake.read(RECORDS.name).to_pylist())
    last = len(results.read_text().splitlines())
    for number, begins in ((first, first), (first + 1, first), (second - 2, first), (second, second), (last - 1, second)):
        found = ask(workspace, f"{results}:{number}")
        (piece,) = found["became"]
        assert (found["begins"], piece["line"], piece["became"]) == ([begins], begins, "trajectory")
        assert found["trajectories"] == [piece["trajectory_id"]]
    for number in (1, second - 1, last, last + 1, 10**9):
        with pytest.raises(UnknownReferenceError, match=rf"holds line {number} of|begins at line {number} or before"):
            ask(workspace, f"{results}:{number}")
    assert why(workspace, f"{results}:{last - 1}") == why(workspace, f"{results}:{second}")


def test_a_file_that_is_gone_still_tells_of_the_lines_on_which_records_begin(workspace: Workspace, results: Path) -> None:
    results.unlink()
    assert ask(workspace, f"{results}:2")["begins"] == [2]
    with pytest.raises(UnknownReferenceError, match=r"cannot be read .* begins at line 2$"):
        ask(workspace, f"{results}:3")


def test_what_is_in_no_trajectory_says_why(workspace: Workspace, tmp_path: Path) -> None:
    log = write_lines(tmp_path / "log.jsonl", [call(1), b"{broken\n"])
    ingest(workspace, [log])
    (piece,) = ask(workspace, f"{log}:2")["became"]
    assert (piece["became"], piece["reason"], piece["trajectory_id"]) == ("quarantined", "bad_json", None)
    assert piece["detail"]
    with pytest.raises(UnknownReferenceError, match=r"is in no trajectory: quarantined \(bad_json\); `nightshift lineage"):
        why(workspace, f"{log}:2")
    assert quarantine.show(workspace, piece["record_id"][:10])["line"] == 2
    write_lines(tmp_path / "more.jsonl", [call(2), b"{broken too\n"])
    ingest(workspace, [tmp_path / "more.jsonl"])
    with pytest.raises(UnknownReferenceError, match="2 ids begin with rec_: "):
        quarantine.show(workspace, "rec_")
