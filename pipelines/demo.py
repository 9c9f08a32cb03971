"""`nightshift demo`: the closed loop on the embedded model, with examples/order_desk as the production harness.

Each night on a declared logical clock (one day a night): the harness serves its tickets with the champion and writes its
log; the nightly Dagster job takes the log through all ten stages; the next night samples from the champion. The audit
set is read here, before and after, and nowhere else: no gate and no monitor sees it.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pipelines import chain, harness, lineage
from pipelines.config import CONFIG_FILE
from pipelines.doors.engine import PolicyServer, hold
from pipelines.errors import ConfigError
from pipelines.evaluation import audit, pass_rate
from pipelines.init import CHECKOUT, make_workspace
from pipelines.nights import run_night
from pipelines.statistics import Rate
from pipelines.workspace import KEYS, Workspace

ORDER_DESK = CHECKOUT / "examples" / "order_desk"
FIRST_DAY = datetime.date(2026, 1, 5)
"""Day of the first night by the demo's clock."""
TASKS_PER_NIGHT = 16
ATTEMPTS = 8
"""16 x 8 = 128 rollouts a night."""
HELD_OUT = 150
AUDIT = 150
MARKER = ".nightshift-demo"
"""Marks a folder as one that the demo made, and may make anew."""
CONTROLS = (None, "shuffled")


def run_demo(*, nights: int, seed: int, folder: Path | None = None, control: str | None = None) -> dict[str, Any]:
    """Run the loop; returns the words of `demo --json`. The workspace is made anew."""
    if control not in CONTROLS:
        raise ConfigError(f"control {control!r} is not known; there is `shuffled`")
    started = time.monotonic()
    workspace = fresh_workspace(folder or CHECKOUT / ".demo", seed=seed, control=control)
    _tickets().write_eval_sets(workspace.folder, seed, num_held_out=HELD_OUT, num_audit=AUDIT)
    told: list[dict[str, Any]] = []
    with hold(workspace) as server:
        first = FIRST_DAY.isoformat()
        before = _audited(workspace, chain.BASE, first)
        for number in range(nights):
            told.append(_night(workspace, server, number, seed))
        champion = chain.start(workspace)
        last = told[-1]["night"]
        after = before if champion.checkpoint_id == chain.BASE else _audited(workspace, champion.checkpoint_id, last)
    curve = _draw(workspace, told, before, after)
    story = lineage.backward(workspace, champion.policy_version) if champion.checkpoint_id != chain.BASE else None
    return {
        "seed": seed,
        "control": control,
        "nights": told,
        "audit_before": before.rate,
        "audit_before_interval": [before.low, before.high],
        "audit_after": after.rate,
        "audit_after_interval": [after.low, after.high],
        "audit_tasks": after.num_tasks,
        "champion": champion.policy_version,
        "judge": _judge_line(workspace, told),
        "lineage": _summary(story),
        "workspace": str(workspace.folder),
        "curve": str(curve),
        "seconds": round(time.monotonic() - started, 1),
    }


def _tickets() -> ModuleType:
    """The example's ticket maker, loaded from its file: examples are no part of this package."""
    spec = importlib.util.spec_from_file_location("order_desk_tickets", ORDER_DESK / "tickets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fresh_workspace(folder: Path, *, seed: int, control: str | None) -> Workspace:
    """Make the demo's workspace, anew where one is there; ConfigError where the folder holds something else."""
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise ConfigError(f"{folder} holds something that is no demo; name an empty folder with --workspace")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # first of all, so that a demo that was cut off at any point can be started again
    (folder / MARKER).touch()
    keys = folder / KEYS
    keys.mkdir()
    for name in ("identity", "redaction"):
        # the demo holds nobody's words: keys made from the seed give the same ids, and so the same nights, on every run
        (keys / name).write_text(hashlib.sha256(f"demo {name} {seed}".encode()).hexdigest() + "\n", encoding="ascii")
        (keys / name).chmod(0o600)
    make_workspace(folder, template=ORDER_DESK, first_day=FIRST_DAY)
    config = folder / CONFIG_FILE
    text = config.read_text(encoding="utf-8")
    changed = text.replace("seed = 0", f"seed = {seed}")
    if control == "shuffled":
        changed = changed.replace("shuffle_advantages = false", 'shuffle_advantages = true\nstart = "latest"')
    config.write_text(changed, encoding="utf-8")
    workspace = Workspace.open(folder)
    wanted = (seed, control == "shuffled")
    if (workspace.config.training.seed, workspace.config.training.shuffle_advantages) != wanted:
        raise ConfigError(f"{ORDER_DESK / CONFIG_FILE} has no `seed = 0` and `shuffle_advantages = false` to set")
    return workspace


def _clock(day: datetime.date, hour: int) -> Callable[[], datetime.datetime]:
    """The demo's clock: the real time of day passes, from `hour` o'clock of the night's day on."""
    began = time.monotonic()
    start = datetime.datetime.combine(day, datetime.time(hour), tzinfo=datetime.UTC)
    return lambda: start + datetime.timedelta(seconds=time.monotonic() - began)


def serve(workspace: Workspace, server: PolicyServer, number: int, *, seed: int) -> str:
    """One day of production, night `number` from 0: the harness answers new tickets and writes its log; returns the night."""
    day = FIRST_DAY + datetime.timedelta(days=number)
    night = day.isoformat()
    # the champion; under a control, whose checkpoints are never promoted, the newest of them
    policy = chain.start(workspace)
    harness.run(
        workspace,
        harness.read_tasks(_tickets().write_night(workspace.folder, night, seed, num_tasks=TASKS_PER_NIGHT)),
        purpose="production",
        policy_version=policy.policy_version,
        attempts=ATTEMPTS,
        log=workspace.folder / "logs" / f"production-{night}.jsonl",
        url=server.url,
        model=server.model_for(policy),
        seed=seed * 1000 + number,
        clock=_clock(day, 9),
    )
    return night


def _night(workspace: Workspace, server: PolicyServer, number: int, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    policy = chain.start(workspace)
    night = serve(workspace, server, number, seed=seed)
    sampled = time.monotonic()
    outcome = run_night(workspace, night)
    reports = outcome["reports"]
    scored, frozen, decided = reports["rewards/rewards"], reports["batches/batches"], reports["promotion/decision"]
    trained = reports["training/run"]
    challenger = reports["checkpoints/checkpoint"]["checkpoint_id"]
    before = pass_rate(workspace, policy.checkpoint_id, "held_out")
    after = pass_rate(workspace, challenger, "held_out") if challenger else None
    seconds = {"sampling": round(sampled - began, 1)}
    seconds |= {asset: round(spent, 1) for asset, spent in outcome["seconds"].items()}
    total = time.monotonic() - began
    seconds["start-up and bookkeeping"] = round(total - sum(seconds.values()), 1)
    return {
        "night": night,
        "rollouts": TASKS_PER_NIGHT * ATTEMPTS,
        "groups": scored["groups"],
        "groups_mixed": scored["groups_mixed"],
        "lanes": frozen["lanes"],
        "mean_reward": scored["mean_reward"],
        "pass_rate": scored["pass_rate"],
        "agreement": scored["agreement"],
        "agreement_pairs": scored["agreement_pairs"],
        "clip_fraction": trained["metrics"].get("clip_fraction"),
        "held_out_before": before.rate if before else None,
        "held_out_before_interval": [before.low, before.high] if before else None,
        "held_out_after": after.rate if after else None,
        "held_out_after_interval": [after.low, after.high] if after else None,
        "decision": decided["decision"],
        "reason": decided["reason"],
        "difference": decided["difference"],
        "lower_bound": decided["lower_bound"],
        "champion": decided["policy_version"],
        "seconds": round(total, 1),
        "seconds_by_stage": seconds,
    }


def _audited(workspace: Workspace, checkpoint_id: str, night: str) -> Rate:
    audit(workspace, checkpoint_id, night)
    found = pass_rate(workspace, checkpoint_id, "audit")
    assert found is not None, "the audit that just ran has results"
    return found


def _judge_line(workspace: Workspace, told: list[dict[str, Any]]) -> str:
    pairs = sum(entry["agreement_pairs"] for entry in told)
    if pairs == 0:
        return "not measured: no judged group had verdicts that differ"
    agreed = sum((entry["agreement"] or 0.0) * entry["agreement_pairs"] for entry in told) / pairs
    named = workspace.config.judge.model
    line = f"{named or 'the embedded 135M model'} agrees with the tests on {agreed:.2f} of {pairs} pairs (0.50 is chance)"
    if named is None:
        line += "; uncalibrated, it trains nothing. Name a real one: [judge] model in nightshift.toml, any LiteLLM model or URL"
    return line


def _summary(story: dict[str, Any] | None) -> dict[str, Any] | None:
    if story is None:
        return None
    counted = {name: len(story[name]) for name in ("parents", "batches", "groups", "trajectories", "sources")}
    return {"checkpoint": story["checkpoint"], **counted, "files": sorted({source["file"] for source in story["sources"]})}


def _draw(workspace: Workspace, told: list[dict[str, Any]], before: Rate, after: Rate) -> Path:
    """The curve of held-out pass rates by night, with intervals, and the audit at both ends."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), dpi=150)
    first = told[0]
    points = [(0, first["held_out_before"], first["held_out_before_interval"], "start")]
    points += [
        (number, entry["held_out_after"], entry["held_out_after_interval"], entry["decision"])
        for number, entry in enumerate(told, start=1)
    ]
    drawn = [point for point in points if point[1] is not None]
    xs, ys = [point[0] for point in drawn], [point[1] for point in drawn]
    spread = [[point[1] - point[2][0] for point in drawn], [point[2][1] - point[1] for point in drawn]]
    axes.errorbar(xs, ys, yerr=spread, marker="o", capsize=4, color="#2b6cb0", label="challenger on held-out tickets")
    for x, y, _, decision in drawn:
        if decision == "hold":
            axes.plot([x], [y], marker="x", markersize=12, color="#c53030", linestyle="none")
            axes.annotate("held", (x, y), textcoords="offset points", xytext=(8, -14), color="#c53030")
    axes.errorbar(
        [0.05, len(told) + 0.05],
        [before.rate, after.rate],
        yerr=[[before.rate - before.low, after.rate - after.low], [before.high - before.rate, after.high - after.rate]],
        marker="s",
        capsize=4,
        linestyle="none",
        color="#718096",
        label="champion on audit tickets (no gate reads them)",
    )
    axes.set_xticks(range(len(told) + 1), ["start", *(f"night {number}" for number in range(1, len(told) + 1))])
    axes.set_ylim(0, 1)
    axes.set_ylabel("sampled pass rate, 95% interval")
    axes.set_title("order_desk: pass rate by night")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path = workspace.folder / "curve.png"
    figure.savefig(path)
    pyplot.close(figure)
    return path
