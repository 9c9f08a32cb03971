"""The digest knows what a lake holds and not how it came there; the checks find what is broken."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines import doctor
from pipelines.landing.land import land
from pipelines.schemas import CHECKPOINTS, DECISIONS, DUPLICATES, RECORDS, TABLES, TRAJECTORIES
from pipelines.workspace import KEYS, Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines


def row(table: str, **values: Any) -> dict[str, Any]:
    return {name: values.get(name) for name in TABLES[table].schema.names}


def append(workspace: Workspace, table: str, *rows: dict[str, Any]) -> None:
    workspace.lake.append(table, pa.Table.from_pylist(list(rows), schema=TABLES[table].schema))


def wrong(workspace: Workspace, check: str) -> list[str]:
    return [finding.detail for finding in doctor.check(workspace) if finding.check == check and not finding.ok]


def record(number: int, **values: Any) -> dict[str, Any]:
    return row(RECORDS.name, record_id=f"rec_{number}", day="2026-11-20", raw="{}", **values)


def test_the_digest_knows_no_order_no_files_and_no_time_of_landing(tmp_path: Path) -> None:
    one, other = make_workspace(tmp_path / "one"), make_workspace(tmp_path / "other")
    empty = doctor.digest(one)
    assert set(empty) == {*TABLES, doctor.TOTAL}
    assert empty[RECORDS.name] == "empty"
    now = datetime.datetime.now(datetime.UTC)
    append(one, RECORDS.name, record(1, source="a", line=1, landed_at=now), record(2, source="a", line=2, landed_at=now))
    append(other, RECORDS.name, record(2, source="b", line=9))
    append(other, RECORDS.name, record(1, source="b", line=8))
    assert doctor.digest(one) == doctor.digest(other) != empty
    append(other, RECORDS.name, record(1))
    assert doctor.digest(one)[RECORDS.name] != doctor.digest(other)[RECORDS.name]


def test_any_change_of_a_column_that_counts_changes_the_digest(tmp_path: Path) -> None:
    found = set()
    for number, values in enumerate(({}, {"raw": "[]"}, {"skip_reason": "meta"}, {"skip_reason": ""}, {"parser_version": 1})):
        workspace = make_workspace(tmp_path / str(number))
        append(workspace, RECORDS.name, {**record(1), **values})
        found.add(doctor.digest(workspace)[doctor.TOTAL])
    assert len(found) == 5


def test_records_are_counted_into_exactly_one_place(workspace: Workspace) -> None:
    append(workspace, RECORDS.name, *(record(number) for number in range(5)), record(5, skip_reason="meta"))
    (said,) = wrong(workspace, "places")
    assert said.startswith("5 records are in no trajectory, rec_0 is one; run `nightshift ingest`")
    append(
        workspace,
        TRAJECTORIES.name,
        row(TRAJECTORIES.name, trajectory_id="trj_1", day="d", record_ids=["rec_0", "rec_1", "rec_2"]),
    )
    append(workspace, DUPLICATES.name, *(row(DUPLICATES.name, record_id=f"rec_{number}", day="d") for number in (3, 4)))
    assert wrong(workspace, "places") == []
    append(workspace, DUPLICATES.name, *(row(DUPLICATES.name, record_id=name, day="d") for name in ("rec_0", "rec_5", "rec_9")))
    assert wrong(workspace, "places") == [
        "1 records are duplicates and skipped, rec_5 is one",
        "1 records are duplicates and trajectories, rec_0 is one",
        "1 records are not landed, rec_9 is one",
    ]


def test_a_doubled_record_is_found(workspace: Workspace) -> None:
    append(workspace, RECORDS.name, record(1), record(1), record(2))
    assert wrong(workspace, "doubled") == ["1 record ids stand more than once, rec_1 in landing/records; report this"]


def test_open_keys_missing_sources_and_torn_tables_are_found(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", '[[sources]]\npath = "nowhere"\n')
    for name in ("identity", "redaction"):
        (workspace.folder / KEYS / name).chmod(0o600)
    assert wrong(workspace, "keys") == []
    (workspace.folder / KEYS / "identity").chmod(0o644)
    assert "chmod 600" in wrong(workspace, "keys")[0]
    assert "nowhere does not exist" in wrong(workspace, "settings")[0]
    land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])])
    assert wrong(workspace, "tables") == []
    log = Path(workspace.lake.uri(RECORDS.name)) / "_delta_log"
    (log / "00000000000000000001.json").write_text('{"torn', encoding="utf-8")
    assert "landing/records" in wrong(workspace, "tables")[0]
    assert wrong(workspace, "places") != []


def test_what_the_settings_name_is_tried(tmp_path: Path) -> None:
    settings = """
    [harness]
    entry = "harness.py:rollout"
    [[rewards.verifiers]]
    name = "answer"
    kind = "python"
    entry = "verifier.py:verify"
    [registry]
    uri = "http://127.0.0.1:9"
    """
    workspace = make_workspace(tmp_path / "workspace", settings)
    (workspace.folder / "harness.py").write_text("def (", encoding="utf-8")
    (workspace.folder / "rubrics" / "default.md").unlink()
    told = wrong(workspace, "settings")
    for part in ("rubric ", "verifier answer: ", "harness ", "MLflow at http://127.0.0.1:9"):
        assert sum(line.startswith(part) for line in told) == 1, (part, told)
    assert all("\n" not in line for line in told)


def test_a_champion_without_its_adapter_is_found(workspace: Workspace) -> None:
    policy = workspace.config.policy.name
    checkpoint = row(CHECKPOINTS.name, checkpoint_id="ckp_1", policy=policy, version=1, path="runs/ckp_1")
    append(workspace, CHECKPOINTS.name, {**checkpoint, "batches": []})
    append(workspace, DECISIONS.name, row(DECISIONS.name, policy=policy, number=1, decision="promote", champion="ckp_1"))
    (said,) = wrong(workspace, "settings")
    assert "ckp_1" in said and "nightshift rollback" in said
    (workspace.folder / "runs" / "ckp_1").mkdir(parents=True)
    assert wrong(workspace, "settings") == []
