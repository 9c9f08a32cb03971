"""The rules that docs/grouping.md names find what they should in logs of these formats."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines import groups
from pipelines.landing.land import land
from pipelines.schemas import GROUPS, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.formats import test_inspect_ai as inspect_ai
from tests.landing.formats import test_langfuse as langfuse
from tests.landing.formats import test_langsmith as langsmith
from tests.landing.formats import test_nemo_gym as nemo_gym
from tests.landing.formats import test_tau2_bench as tau2_bench
from tests.landing.lines import line
from tests.trajectories.test_task_rules import unnamed

DOC = Path(__file__).resolve().parents[2] / "docs" / "grouping.md"


def lines(*values: Any) -> bytes:
    return b"".join(line(value) for value in values)


def inspected(run: str) -> bytes:
    told = {**inspect_ai.EVAL, "run_id": run, "created": f"2026-03-05T1{run}:00:00+00:00"}
    return json.dumps(
        {"version": 2, "status": "success", "eval": told, "samples": [inspect_ai.sample(1, uuid=f"own-{run}")]}
    ).encode()


def smith(run: str) -> bytes:
    number = int(run)
    own = {"id": f"r{run}", "trace_id": f"r{run}", "dotted_order": f"20261121T000000000000Zr{run}"}
    asked = {"inputs": {"messages": [[langsmith.HUMAN]]}, "outputs": langsmith.generations(langsmith.AI)}
    return lines(langsmith.run(number, "llm", **own, **asked, session_id=f"project-{run}"))


def fused(run: str) -> bytes:
    trace = {**langfuse.trace(), "id": f"t{run}", "sessionId": f"session-{run}"}
    own = {"traceId": f"t{run}", "id": f"g{run}"}
    return lines(trace, langfuse.generation(2, [langfuse.SYSTEM, langfuse.ASKED], [langfuse.ANSWERED], **own))


def tau2(run: str) -> bytes:
    told = tau2_bench.results(tau2_bench.simulation(id=f"sim-{run}"))
    return json.dumps({**told, "info": {**told["info"], "seed": int(run)}}).encode()


RUNS = {
    "inspect_ai": ("$.eval.run_id", inspected),
    "langsmith": ("$.session_id", smith),
    "langfuse": ("$.trace.sessionId", fused),
    "nemo_gym": ("$.run_name", lambda run: lines(nemo_gym.row(run_name=f"run {run}"))),
    "recorder": ("$.metadata.run", lambda run: lines(call(f"a{run}", metadata={"run": run}))),
    "tau2_bench": ("$.run.info.seed", tau2),
}


def taken_in(folder: Path, config: str, files: dict[str, bytes]) -> Workspace:
    workspace = make_workspace(folder, config + "[evaluation]\nheld_out_share = 0.0\n")
    logs = folder / "logs"
    logs.mkdir()
    for name, content in files.items():
        (logs / name).write_bytes(content)
    land(workspace, [logs])
    build(workspace)
    groups.seal(workspace, "2026-11-30", judged=True)
    return workspace


@pytest.mark.parametrize("format", RUNS)
def test_runs_stay_apart_in_logs_that_name_them(tmp_path: Path, format: str) -> None:
    path, written = RUNS[format]
    assert re.search(rf"\| {format} \|.*`{re.escape(path)}`", DOC.read_text())
    files = {
        f"{run}.{'jsonl' if format in ('langsmith', 'langfuse', 'nemo_gym', 'recorder') else 'json'}": written(run)
        for run in "12"
    }
    together = taken_in(tmp_path / "together", "", files)
    rows = rows_of(together, TRAJECTORIES.name)
    assert [row["format"] for row in rows] == [format] * 2 and len({row["task_key"] for row in rows}) == 1
    assert rows_of(together, GROUPS.name), "they would be siblings"
    apart = taken_in(tmp_path / "apart", f'[groups]\nrun = "{path}"\n', files)
    assert len({row["run_key"] for row in rows_of(apart, TRAJECTORIES.name)} - {None}) == 2
    assert rows_of(apart, GROUPS.name) == []


def test_the_rules_that_the_page_shows(tmp_path: Path) -> None:
    text = DOC.read_text()
    config, volatile = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "rules.py").write_text(code)
    workspace = make_workspace(tmp_path / "w", config.replace("[groups]\n", volatile))
    for name in ("desk", "other"):
        (tmp_path / "w" / "logs" / name).mkdir(parents=True)
        numbered = unnamed(f"{name} a", "[#7] refund", metadata={"ticket": "9"})
        asked = [unnamed(f"{name} {number}", f"Case #{number}: at {number}:30") for number in (1, 2)]
        (tmp_path / "w" / "logs" / name / "1.jsonl").write_bytes(lines(numbered, *asked))
    land(workspace, [tmp_path / "w" / "logs"])
    build(workspace)
    rows = rows_of(workspace, TRAJECTORIES.name)
    named = sorted((str(row["task_id"]), row["task_source"]) for row in rows)
    assert named == [("7", "rule"), ("9", "rule"), *[("None", "request")] * 4]
    assert len({row["task_key"] for row in rows}) == 3
