"""The lake's door under races: several processes that make a table at once all end up with the one that was made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
