"""The lake's door under races: several processes that make a table at once all end up with the one that was made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from pipelines.doors.lake import dataset_of
from pipelines.doors.parts import files_since, files_with
from pipelines.doors.queries import Kept, Since
from pipelines.schemas import LANES, SPLITS, TRAJECTORIES
from pipelines.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys, time
from pathlib import Path
import pyarrow as pa
from pipelines.schemas import SPLITS, SIGNALS, WANTED, CONSUMED, LANES, GROUPS
from pipelines.doors.lake import Lake
lake, me, folder = Lake(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
(folder / me).touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for spec in (SPLITS, SIGNALS, WANTED, CONSUMED, LANES, GROUPS):
    row = {name: None for name in spec.schema.names} | {name: me for name in spec.key if spec.schema.field(name).type == pa.string()}
    lake.append_missing(spec.name, pa.Table.from_pylist([row], schema=spec.schema))
"""


def test_tables_made_by_several_writers_at_once_hold_the_rows_of_all(workspace: Workspace, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.mkdir()
    names = [f"writer-{number}" for number in range(4)]
    command = [sys.executable, "-c", PROGRAM, workspace.lake.root]
    writers = [subprocess.Popen([*command, name, str(ready)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for name in names]
    while len(list(ready.iterdir())) < len(names) and all(writer.poll() is None for writer in writers):
        pass
    (ready / "go").touch()
    said = [writer.communicate(timeout=120)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, said
    for table in ("groups/splits", "monitors/signals", "groups/wanted", "batches/consumed", "batches/lanes", "groups/groups"):
        assert workspace.lake.num_rows(table) == len(names), table


DAYS = ("2026-11-18", "2026-11-19", "2026-11-20")


def grown(workspace: Workspace) -> None:
    """A commit for each day: two attempts, and the splits of their tasks, which lie in no partition."""
    for day in DAYS:
        rows = [{"trajectory_id": f"t{day}{number}", "day": day, "task_key": f"k{day}"} for number in range(2)]
        workspace.lake.append(TRAJECTORIES.name, pa.Table.from_pylist(rows, schema=TRAJECTORIES.schema))
        split = [{"task_key": f"k{day}", "split": "train", "day": day}]
        workspace.lake.append(SPLITS.name, pa.Table.from_pylist(split, schema=SPLITS.schema))


def test_a_query_sees_only_the_rows_that_it_was_given_and_opens_no_other_file(workspace: Workspace) -> None:
    grown(workspace)
    workspace.lake.append(SPLITS.name, pa.Table.from_pylist([{"task_key": "old"}], schema=SPLITS.schema))  # of no day
    only = {TRAJECTORIES.name: Kept("day", frozenset(DAYS[1:])), SPLITS.name: Kept("day", frozenset(DAYS[:1]))}
    asked = "SELECT (SELECT count(*) FROM trajectories.trajectories) AS t, (SELECT list(task_key ORDER BY task_key) FROM groups.splits) AS s"
    assert workspace.queries.ask(asked, only=only).to_pylist() == [{"t": 4, "s": [f"k{DAYS[0]}", "old"]}]
    for table, days, num_files in ((TRAJECTORIES.name, DAYS[1:], 2), (SPLITS.name, DAYS[:1], 2), (TRAJECTORIES.name, (), 0)):
        handle = workspace.lake.handle(table)
        assert handle is not None
        assert len(files_with(handle, "day", days)) == num_files


def test_what_changed_since_a_version_is_told_by_the_files_that_came_and_went(workspace: Workspace) -> None:
    assert workspace.lake.changed_since(TRAJECTORIES.name, 0, "day") == set()
    grown(workspace)
    lake, version = workspace.lake, workspace.lake.version(TRAJECTORIES.name)
    assert version is not None
    assert lake.changed_since(TRAJECTORIES.name, version, "day") == set()
    assert lake.changed_since(TRAJECTORIES.name, version - 1, "day") == {DAYS[2]}
    # moved to another day: both days changed
    moved = pa.Table.from_pylist([{"trajectory_id": f"t{DAYS[0]}0", "day": DAYS[1], "task_key": "k"}], schema=TRAJECTORIES.schema)
    lake.replace_rows(TRAJECTORIES.name, "trajectory_id", [f"t{DAYS[0]}0"], lambda _: moved)
    assert lake.changed_since(TRAJECTORIES.name, version, "day") == set(DAYS[:2])
    assert lake.changed_since(SPLITS.name, (lake.version(SPLITS.name) or 0) - 1, "task_key") == {f"k{DAYS[2]}"}
    assert lake.changed_since(TRAJECTORIES.name, 99, "day") is None


def test_a_query_sees_what_was_written_since_a_version(workspace: Workspace) -> None:
    grown(workspace)
    lake, version = workspace.lake, workspace.lake.version(TRAJECTORIES.name)
    assert version is not None
    asked = "SELECT trajectory_id FROM trajectories.trajectories ORDER BY trajectory_id"

    def seen(since: int) -> list[str]:
        return workspace.queries.ask(asked, only={TRAJECTORIES.name: Since(since)}).column("trajectory_id").to_pylist()

    assert seen(version) == []
    assert seen(version - 1) == [f"t{DAYS[2]}{number}" for number in range(2)]
    row = pa.Table.from_pylist([{"trajectory_id": f"t{DAYS[0]}0", "day": DAYS[0], "task_key": "k"}], schema=TRAJECTORIES.schema)
    lake.replace_rows(TRAJECTORIES.name, "trajectory_id", [f"t{DAYS[0]}0"], lambda _: row)
    assert set(seen(version)) == {f"t{DAYS[0]}{number}" for number in range(2)}  # the other row of its file was copied with it
    assert len(seen(99)) == 6
    handle = lake.handle(TRAJECTORIES.name)
    before = lake.at(TRAJECTORIES.name, version)
    assert handle is not None and before is not None
    assert dataset_of(handle, files_since(before, handle)).count_rows() == 2


def test_sequences_are_committed_with_the_rows_that_replace_others(workspace: Workspace) -> None:
    lane = {"night": DAYS[0], "trajectory_id": "t"}
    workspace.lake.replace_computed(
        LANES.name, [DAYS[0]], lambda _: pa.Table.from_pylist([lane], schema=LANES.schema), sequences={"how far": 7}
    )
    assert workspace.lake.sequences(LANES.name)["how far"] == 7
