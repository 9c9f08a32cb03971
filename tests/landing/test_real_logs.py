"""All real logs at once: every file read by the format that its folder is named for, every record in exactly one place."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from pipelines.ingest import ingest
from pipelines.landing import registry
from pipelines.trajectories import UNREADABLE
from tests.conftest import make_workspace

NOT_LOGS = {"README.md", "SOURCES.tsv", "langfuse_export_chatml"}


def test_the_whole_tree_is_read_and_its_counts_reconcile(shared_logs: Path, tmp_path: Path) -> None:
    shared_logs = shared_logs.resolve()
    workspace = make_workspace(tmp_path / "workspace")
    answer = ingest(workspace, [shared_logs])
    ask = workspace.queries.ask
    assert answer["left_out"].get(UNREADABLE, 0) == 0
    assert workspace.queries.run("doctor/misplaced").to_pylist() == []
    assert workspace.queries.run("doctor/doubled").to_pylist() == []
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0
    (landed,) = ask("SELECT count(*) AS n, count(skip_reason) AS skipped FROM landing.records").to_pylist()
    (held,) = ask(
        "SELECT count(DISTINCT record_id) AS n FROM (SELECT unnest(record_ids) AS record_id FROM trajectories.trajectories)"
    ).to_pylist()
    assert (answer["records"], answer["skipped"]) == (landed["n"] - landed["skipped"], landed["skipped"])
    assert answer["records"] == held["n"] + answer["duplicates"]

    read: dict[str, Counter[str]] = defaultdict(Counter)
    for row in ask("SELECT DISTINCT source, format FROM landing.records").to_pylist():
        read[Path(row["source"]).relative_to(shared_logs).parts[0]][row["format"]] += 1
    folders = {path.name for path in shared_logs.iterdir()} - NOT_LOGS
    assert folders <= read.keys(), "a folder of real logs that no format reads"
    assert {format for formats in read.values() for format in formats} <= set(registry.names())

    again = ingest(workspace, [shared_logs])
    assert (again["records"], again["skipped"], again["quarantined"]) == (0, 0, 0)
