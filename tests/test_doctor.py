"""The digest knows what a lake holds and not how it came there; the checks find what is broken."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines import doctor, trajectories
from pipelines.landing.land import land
from pipelines.schemas import CHECKPOINTS, DECISIONS, DUPLICATES, QUARANTINE, RECORDS, TABLES, TRAJECTORIES
from pipelines.workspace import KEYS, Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines

ROOT = Path(__file__).resolve().parents[1]


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


# real damage, on real tables

OLD = 25 * 3600
LOGS = "logs"


def log_of(workspace: Workspace, table: str) -> Path:
    return Path(workspace.lake.uri(table)) / "_delta_log"


def commits(workspace: Workspace, table: str) -> list[Path]:
    return sorted(log_of(workspace, table).glob("*.json"))


def logs(workspace: Workspace) -> Path:
    """Three files, so that every table of landing and trajectories has several commits."""
    folder = workspace.folder / LOGS
    for number in range(3):
        lines = [call(10 * number + attempt) for attempt in range(4)]
        write_lines(folder / f"{number}.jsonl", [*lines, b"{torn %d\n" % number])
    return folder


def take_in(workspace: Workspace, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        land(workspace, [path], day="2026-11-28")
        trajectories.build(workspace)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("whole") / "workspace")
    take_in(workspace, logs(workspace))
    return workspace


@pytest.fixture(scope="module")
def undamaged(whole: Workspace) -> dict[str, str]:
    return doctor.digest(whole)


@pytest.fixture
def landed(whole: Workspace, tmp_path: Path) -> Workspace:
    """A copy, to be damaged; that copying changes nothing is part of every test that compares it with `undamaged`."""
    shutil.copytree(whole.folder, tmp_path / "landed")
    return Workspace.open(tmp_path / "landed")


def heal(workspace: Workspace, folder: Path) -> list[str]:
    """What `doctor --fix` and a new ingest do; that fixing again finds nothing is part of it."""
    done = doctor.fix(Workspace.open(workspace.folder, claim=False))
    assert doctor.fix(workspace) == []
    assert wrong(workspace, "damage") == []
    take_in(Workspace.open(workspace.folder), folder)
    return done


def kept(workspace: Workspace, table: str) -> list[str]:
    stage, name = table.split("/")
    folder = Path(workspace.lake.root) / stage / ".damaged" / name
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_between_lines(path: Path) -> None:
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if b'"add"' not in line]
    path.write_bytes(b"".join(lines))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


TORN = [cut, cut_between_lines, empty, zeros]
MADE = [RECORDS.name, QUARANTINE.name, TRAJECTORIES.name]


@pytest.mark.parametrize("table", MADE)
@pytest.mark.parametrize("tear", TORN)
def test_a_torn_newest_commit_is_set_aside_and_landed_again(
    landed: Workspace, undamaged: dict[str, str], tear: Callable[[Path], None], table: str
) -> None:
    folder = landed.folder / LOGS
    tear(commits(landed, table)[-1])
    (said,) = wrong(landed, "damage")
    assert table in said and "--fix" in said
    assert heal(landed, folder) != []
    assert doctor.digest(landed) == undamaged
    assert len(kept(landed, table)) == 1


def test_several_torn_commits_are_one_damage(landed: Workspace, undamaged: dict[str, str]) -> None:
    folder = landed.folder / LOGS
    empty(commits(landed, RECORDS.name)[-1])
    cut(commits(landed, RECORDS.name)[-2])
    heal(landed, folder)
    assert doctor.digest(landed) == undamaged
    assert len(kept(landed, RECORDS.name)) == 2


@pytest.mark.parametrize("table", MADE)
@pytest.mark.parametrize("tear", TORN)
def test_a_hole_in_the_middle_of_a_log_is_closed_and_everything_read_anew(
    landed: Workspace, undamaged: dict[str, str], tear: Callable[[Path], None], table: str
) -> None:
    folder = landed.folder / LOGS
    tear(commits(landed, table)[-2])
    heal(landed, folder)
    assert doctor.digest(landed) == undamaged


def test_a_hole_in_a_table_that_nothing_makes_again_is_left_alone(workspace: Workspace) -> None:
    for number in range(3):
        append(workspace, DECISIONS.name, row(DECISIONS.name, policy="p", number=number))
    empty(commits(workspace, DECISIONS.name)[-2])
    assert doctor.fix(workspace) == []
    (said,) = wrong(workspace, "damage")
    assert "backup" in said and "--fix" not in said


def checkpointed(workspace: Workspace) -> Path:
    handle = workspace.lake.handle(RECORDS.name)
    assert handle is not None
    handle.create_checkpoint()
    (path,) = log_of(workspace, RECORDS.name).glob("*.checkpoint.parquet")
    return path


def hint(path: Path) -> Path:
    return path.with_name("_last_checkpoint")


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        empty,
        zeros,
        lambda path: path.unlink(),
        lambda path: cut(hint(path)) or cut(path),
        lambda path: hint(path).unlink() or cut(path),
        lambda path: cut(hint(path)),
    ],
)
def test_torn_checkpoints_and_hints_are_set_aside(
    landed: Workspace, undamaged: dict[str, str], damage: Callable[[Path], Any]
) -> None:
    damage(checkpointed(landed))
    assert wrong(landed, "damage") != []
    doctor.fix(landed)
    assert doctor.digest(landed) == undamaged  # nothing was lost
    assert wrong(landed, "damage") == [] and doctor.fix(landed) == []


def test_a_torn_checkpoint_whose_log_is_gone_is_not_touched(landed: Workspace) -> None:
    path = checkpointed(landed)
    commits(landed, RECORDS.name)[0].unlink()  # as log cleanup does once there is a checkpoint
    cut(path)
    assert doctor.fix(landed) == []
    assert path.exists() and wrong(landed, "damage") != []


def test_damage_before_a_checkpoint_is_history(landed: Workspace) -> None:
    checkpointed(landed)
    empty(commits(landed, RECORDS.name)[0])
    assert wrong(landed, "damage") == []


def test_orphans_are_set_aside_once_they_are_old(landed: Workspace, undamaged: dict[str, str]) -> None:
    folder = landed.folder / LOGS
    handle = landed.lake.handle(TRAJECTORIES.name)
    assert handle is not None
    held = Path(handle.file_uris()[0].removeprefix("file://"))
    orphan = held.with_name("part-00000-killed.parquet")
    orphan.write_bytes(held.read_bytes())
    assert wrong(landed, "damage") == []  # its writer may be at work
    for path in Path(landed.lake.root).rglob("*.parquet"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - OLD))
    assert wrong(landed, "damage") == [
        "trajectories/trajectories: 1 file(s) that no version names, left by writers that were killed; "
        "`nightshift doctor --fix` mends it"
    ]
    heal(landed, folder)
    assert kept(landed, TRAJECTORIES.name) == [f"{held.parent.name}/{orphan.name}"]
    assert doctor.digest(landed) == undamaged


@pytest.mark.parametrize("table", MADE)
def test_data_files_that_are_gone_are_made_again(landed: Workspace, undamaged: dict[str, str], table: str) -> None:
    folder = landed.folder / LOGS
    handle = landed.lake.handle(table)
    assert handle is not None
    Path(handle.file_uris()[0].removeprefix("file://")).unlink()
    assert "are gone" in wrong(landed, "damage")[0]
    heal(landed, folder)
    assert doctor.digest(landed) == undamaged


@pytest.mark.parametrize("table", MADE)
@pytest.mark.parametrize("damage", [cut, empty, zeros])
def test_data_files_that_are_cut_are_set_aside_and_made_again(
    landed: Workspace, undamaged: dict[str, str], table: str, damage: Callable[[Path], Any]
) -> None:
    folder = landed.folder / LOGS
    handle = landed.lake.handle(table)
    assert handle is not None
    path = Path(handle.file_uris()[0].removeprefix("file://"))
    damage(path)
    assert "are cut" in wrong(landed, "damage")[0]
    heal(landed, folder)
    assert doctor.digest(landed) == undamaged
    assert any(path.name in name for name in kept(landed, table))


@pytest.mark.parametrize("table", [*MADE, "identity"])
@pytest.mark.parametrize("damage", [cut, empty, zeros])
def test_a_torn_first_commit_is_written_anew(
    landed: Workspace, undamaged: dict[str, str], table: str, damage: Callable[[Path], Any]
) -> None:
    damage(commits(landed, table)[0])
    assert "version 0" in wrong(landed, "damage")[0]
    doctor.fix(landed)
    assert wrong(landed, "damage") == []
    assert doctor.digest(landed) == undamaged  # it holds no rows


def test_the_command_line_mends_a_lake_that_does_not_open(landed: Workspace, undamaged: dict[str, str]) -> None:
    folder = landed.folder / LOGS
    for table in ("identity", RECORDS.name):
        cut(commits(landed, table)[-1])
    for name in ("identity", "redaction"):
        (landed.folder / KEYS / name).chmod(0o600)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipelines", "doctor", "-w", str(landed.folder), "--json", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    told = run()
    assert told.returncode == 1 and told.stderr == ""
    fixed = json.loads(run("--fix").stdout)
    assert sum(entry["check"] == "fixed" for entry in fixed) == 4
    take_in(Workspace.open(landed.folder), folder)
    last = run("--fix")
    assert last.returncode == 0, last.stdout
    assert not any(entry["check"] == "fixed" for entry in json.loads(last.stdout))
    assert doctor.digest(landed) == undamaged


def test_a_checkpoint_without_its_edges_is_pinned_again(workspace: Workspace) -> None:
    checkpoint = row(CHECKPOINTS.name, checkpoint_id="ckp_1", policy="p", version=1, run_id="run_1", path="runs/run_1/checkpoint")
    append(workspace, CHECKPOINTS.name, {**checkpoint, "batches": []})
    (workspace.runs / "run_1").mkdir(parents=True)
    (said,) = wrong(workspace, "lineage")
    assert "ckp_1" in said and "--fix" in said
    (done,) = doctor.fix(workspace)
    assert done.startswith("lineage of ckp_1")
    assert wrong(workspace, "lineage") == []


def test_a_checkpoint_whose_batch_is_gone_is_found(workspace: Workspace) -> None:
    append(
        workspace, CHECKPOINTS.name, {**row(CHECKPOINTS.name, checkpoint_id="ckp_1", policy="p", version=1), "batches": ["bat_1"]}
    )
    (said,) = wrong(workspace, "lineage")
    assert "ckp_1" in said and "bat_1" in said


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
