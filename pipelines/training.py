"""Reads: batches/<batch_id>/, batches/consumed, checkpoints/checkpoints. Writes: runs/<run_id>/ (run.toml; the rest is the trainer's). Next: checkpoints.

One run a night over all batches that no checkpoint holds yet. A run is named by its batches and its configuration, so
that asking again finds the same folder: finished, it is reused; half-done, it is trained again from the parent that its
run.toml names. The trainer is a child process and learns everything from that file; nothing but its exit code, its log
and the checkpoint's manifest is believed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import tomli_w

from pipelines import chain, locks
from pipelines.errors import CheckpointRefusedError, TrainingError
from pipelines.ids import plain_hash
from pipelines.progress import bar
from pipelines.reports import Trained
from pipelines.workspace import Workspace
from trainer.contract import EXIT_DIVERGED, EXIT_OK, EXIT_REFUSED, MANIFEST_FILE, CheckpointManifest

CHECKOUT = Path(__file__).resolve().parent.parent
"""Where `python -m trainer` resolves; the child's working folder."""

RUN_FILE = "run.toml"
LOG_FILE = "trainer.log"
METRICS_FILE = "metrics.jsonl"
CHECKPOINT = "checkpoint"
"""Folder of the checkpoint inside its run's."""
LOCK_FILE = ".lock"

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingPlan:
    """What tonight's run is, before it runs; finished where the same was trained before."""

    run_id: str | None
    """None where there is nothing to train."""
    folder: Path | None
    """`runs/<run_id>`, None where there is nothing to train."""
    command: list[str]
    cwd: Path
    environment: dict[str, str]
    """Variables to set for the child, beside those of this process."""
    done: bool
    """The checkpoint is there: do not launch, `finish` with exit code 0."""
    batch_ids: list[str] = field(default_factory=list)
    """Sorted."""
    why_nothing: str | None = None

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the checkpoint that the run writes."""
        return None if self.folder is None else self.folder / CHECKPOINT

    @property
    def log(self) -> Path | None:
        """Where whoever starts the command puts its output; its last line is quoted when it dies."""
        return None if self.folder is None else self.folder / LOG_FILE


def config_hash(workspace: Workspace) -> str:
    """Hash of what shapes a run beside its batches: [training] and the policy's name and base model, never the parent."""
    config = workspace.config
    policy = {"name": config.policy.name, "base_model": config.policy.base_model}
    return plain_hash({"training": config.training.model_dump(mode="json"), "policy": policy})


def plan(workspace: Workspace, night: str) -> TrainingPlan:
    """Tonight's run over all pending batches, else the run that this night's batches went into before.

    Writes `runs/<run_id>/run.toml` where it is missing. The parent is asked for once, the first time, and stays. Raises
    TrainingError where a finished checkpoint no longer is what its manifest says.
    """
    pending = workspace.queries.run("batches/pending").to_pylist()
    if pending:
        batch_ids = sorted({row["batch_id"] for row in pending})
        hashed = config_hash(workspace)
        run_id = workspace.identity.of("run", *batch_ids, hashed)
        folder = workspace.runs / run_id
        if not _finished(folder):
            _write_run(workspace, night, folder, run_id, batch_ids, _lane(pending), hashed)
        return _planned(folder, run_id, batch_ids)
    earlier = workspace.queries.run("training/of_night", {"night": night, "policy": workspace.config.policy.name}).to_pylist()
    if earlier:
        return _planned(workspace.path(earlier[0]["path"]).parent, earlier[0]["run_id"], earlier[0]["batches"])
    why = "no batch waits for training: tonight froze none, and every earlier one is in a checkpoint"
    return TrainingPlan(None, None, [], CHECKOUT, {}, done=True, why_nothing=why)


def launch(
    workspace: Workspace,
    plan: TrainingPlan,
    *,
    env: Mapping[str, str] | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> int:
    """Run the trainer to its end and return its exit code (negative: the signal that killed it); 0 at once where done.

    `env` adds variables (Dagster Pipes' bootstrap); `on_step` gets each line of metrics.jsonl while the run goes on. The
    child's output goes to `trainer.log` in the run's folder. BusyError where another run holds the workspace.
    """
    if plan.done or plan.folder is None or _finished(plan.folder):
        return EXIT_OK
    with one_at_a_time(workspace), (plan.folder / LOG_FILE).open("wb") as log, ExitStack() as shown:
        if _finished(plan.folder):  # by another process, between the look above and the lock
            return EXIT_OK
        metrics = plan.folder / METRICS_FILE
        metrics.unlink(missing_ok=True)
        child = subprocess.Popen(
            plan.command,
            cwd=plan.cwd,
            env={**os.environ, **plan.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        advance: Callable[[int], None] | None = None
        seen = 0
        try:
            while True:
                try:
                    returncode = child.wait(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    returncode = None
                for step in read_metrics(metrics)[seen:]:
                    seen += 1
                    if advance is None:
                        advance = shown.enter_context(bar("training steps", int(step.get("num_steps", 0))))
                    advance(1)
                    if on_step is not None:
                        on_step(step)
                if returncode is not None:
                    return returncode
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


def finish(workspace: Workspace, plan: TrainingPlan, returncode: int) -> Trained:
    """The checkpoint that the run left; TrainingError says how it died, and that the same command tries again."""
    if plan.folder is None or plan.run_id is None:
        return Trained(run_id=None, folder=None, batch_ids=[], reused=False, metrics={}, why_nothing=plan.why_nothing)
    if returncode != EXIT_OK:
        raise TrainingError(_obituary(workspace, plan.folder, returncode), run_id=plan.run_id, returncode=returncode)
    checkpoint = plan.folder / CHECKPOINT
    if not (checkpoint / MANIFEST_FILE).exists():
        raise TrainingError(
            f"run {plan.run_id}: the trainer ended with exit code 0 but left no {MANIFEST_FILE} in "
            f"{workspace.shown(checkpoint)}; nothing is registered. {_last_words(workspace, plan.folder)}",
            run_id=plan.run_id,
        )
    manifest = _manifest(plan.folder)
    if manifest.run_id != plan.run_id or sorted(manifest.batches) != plan.batch_ids:
        raise TrainingError(
            f"run {plan.run_id}: the manifest in {workspace.shown(checkpoint)} is that of run {manifest.run_id} over "
            f"{len(manifest.batches)} batches, not of this one; move the folder away and run the same command again",
            run_id=plan.run_id,
        )
    return Trained(
        run_id=plan.run_id,
        folder=checkpoint,
        batch_ids=plan.batch_ids,
        reused=plan.done,
        metrics=dict(manifest.metrics),
    )


def one_at_a_time(workspace: Workspace) -> AbstractContextManager[None]:
    """Hold the workspace for one trainer run; BusyError names the process that holds it."""
    return locks.alone(workspace.runs / LOCK_FILE, "a trainer run")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a metrics.jsonl, one per optimiser step; a line still being written is left out."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    return [orjson.loads(line) for line in written[: written.rfind(b"\n") + 1].split(b"\n") if line.strip()]


def _lane(pending: list[dict[str, Any]]) -> str:
    lanes = sorted({row["lane"] for row in pending})
    if len(lanes) > 1:
        raise TrainingError(
            f"batches of the lanes {', '.join(lanes)} wait, and one run trains one lane; name one in training.lanes"
        )
    return lanes[0]


def _planned(folder: Path, run_id: str, batch_ids: list[str]) -> TrainingPlan:
    # waiting threads that spin take the cores from whatever else runs at night
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    command = [sys.executable, "-m", "trainer", "--config", str(folder / RUN_FILE)]
    return TrainingPlan(run_id, folder, command, CHECKOUT, environment, done=_finished(folder), batch_ids=sorted(batch_ids))


def _finished(folder: Path) -> bool:
    if not (folder / CHECKPOINT / MANIFEST_FILE).exists():
        return False
    _manifest(folder)
    return True


def _manifest(folder: Path) -> CheckpointManifest:
    try:
        return CheckpointManifest.read(folder / CHECKPOINT)
    except CheckpointRefusedError as problem:
        raise TrainingError(f"{problem}; bring the folder back, or move {folder} away and run the same command again") from None


def _write_run(workspace: Workspace, night: str, folder: Path, run_id: str, batch_ids: list[str], lane: str, hashed: str) -> None:
    from pipelines.doors.engine import base_identity

    training, path = workspace.config.training, folder / RUN_FILE
    stored: dict[str, Any] = {}
    if path.exists():
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    parent = chain.policy(workspace, stored["parent_id"] or chain.BASE) if stored else chain.start(workspace)
    base_model = workspace.config.policy.base_model
    run: dict[str, Any] = {
        "run_id": run_id,
        "night": stored.get("night", night),
        "lane": lane,
        "loss": training.loss,
        "backend": training.backend,
        "batches": [str(workspace.batches / batch_id) for batch_id in batch_ids],
        "base_model": base_model if base_model == "embedded" else str(workspace.path(base_model)),
        "base_model_name": base_identity(workspace)[0],
        "parent_id": "" if parent.checkpoint_id == chain.BASE else parent.checkpoint_id,
        "parent_folder": "" if parent.folder is None else str(parent.folder),
        "out": CHECKPOINT,
        "learning_rate": training.learning_rate,
        "learning_rate_decay": training.learning_rate_decay,
        "epochs": training.epochs,
        "groups_per_step": training.groups_per_step,
        "clip_low": training.clip_low,
        "clip_high": training.clip_high,
        "dual_clip": training.dual_clip or 0.0,
        "max_clip_fraction": training.max_clip_fraction or 0.0,
        "loss_mean": training.loss_mean,
        "max_grad_norm": training.max_grad_norm,
        "weight_decay": training.weight_decay,
        "lora_rank": training.lora_rank,
        "lora_alpha": training.lora_alpha,
        "seed": training.seed,
        "shuffle_advantages": training.shuffle_advantages,
        "config_hash": hashed,
    }
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(RUN_FILE + ".partial")
    partial.write_bytes(tomli_w.dumps(run).encode())
    partial.replace(path)


def _obituary(workspace: Workspace, folder: Path, returncode: int) -> str:
    run, last = f"run {folder.name}", _last_words(workspace, folder)
    if returncode == EXIT_REFUSED:
        return f"{run}: the trainer refused what it was given and trained nothing. {last}"
    if returncode == EXIT_DIVERGED:
        return f"{run}: the loss diverged, no checkpoint was written; lower training.learning_rate. {last}"
    number = -returncode if returncode < 0 else returncode - 128 if returncode > 128 else 0
    if number:
        name = _signal_name(number)
        hint = (
            "; probably the machine ran out of memory: lower training.groups_per_step, or free memory"
            if number == signal.SIGKILL
            else ""
        )
        return f"{run}: the trainer was killed by {name}{hint}. Nothing was registered; run the same command again. {last}"
    return f"{run}: the trainer died with exit code {returncode}. Nothing was registered. {last}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(workspace: Workspace, folder: Path) -> str:
    try:
        with (folder / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
    except FileNotFoundError:
        return "Its output stands above."
    if not lines:
        return "It printed nothing."
    return f"Its last line: {lines[-1].strip()[:500]} (all of it in {workspace.shown(folder / LOG_FILE)})"
