"""Resources: what an asset asks for, vended as the plain objects of the domain."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster import AssetExecutionContext, PipesTempFileContextInjector, PipesTempFileMessageReader, open_pipes_session

from pipelines.locks import waiting
from pipelines.training import TrainingPlan
from pipelines.workspace import Workspace

WORKSPACE_VARIABLE = "NIGHTSHIFT_WORKSPACE"

CHECKOUT = Path(__file__).resolve().parents[1]


def workspace_folder() -> Path:
    """The workspace that this process works on: NIGHTSHIFT_WORKSPACE, else the current folder."""
    return Path(os.environ.get(WORKSPACE_VARIABLE) or Path.cwd()).resolve()


class WorkspaceResource(dg.ConfigurableResource):
    """Opens the workspace; opening verifies configuration, keys and the lake's identity."""

    folder: str

    def open(self) -> Workspace:
        """The opened workspace."""
        return Workspace.open(self.folder)


class NightLock(dg.ConfigurableResource):
    """Held for the whole of a nightly run: the daemon's runs queue behind each other, and behind one started by hand."""

    folder: str
    held_by_caller: bool = False
    """The process that started the run holds the lock itself, and failed fast where another had it."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[NightLock]:
        """Wait for the lock, hold it until the run ends."""
        del context
        if self.held_by_caller:
            yield self
            return
        with waiting(Path(self.folder) / ".night.lock"):
            yield self


class LocalTrainer(dg.ConfigurableResource):
    """Launches the trainer as a child process with a Dagster Pipes connection; nothing but reporting goes through it."""

    def run(self, context: AssetExecutionContext, plan: TrainingPlan) -> tuple[int, dg.MaterializeResult]:
        """Run the plan's command to its end; returns the exit code (-n: killed by signal n) and what the child reported."""
        with (
            open_pipes_session(
                context=context,
                context_injector=PipesTempFileContextInjector(),
                message_reader=PipesTempFileMessageReader(),
            ) as pipes,
            _child(plan, pipes.get_bootstrap_env_vars()) as process,
        ):
            returncode = process.wait()
        results = [result for result in pipes.get_results() if isinstance(result, dg.MaterializeResult)]
        return returncode, results[-1] if results else dg.MaterializeResult()


@contextmanager
def _child(plan: TrainingPlan, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a process group of its own, which never outlives the asset."""
    assert plan.log is not None, "a plan with a command has a folder"
    with plan.log.open("wb") as log:  # its last line is quoted when the trainer dies; its progress comes through Pipes
        process = subprocess.Popen(
            plan.command,
            cwd=plan.cwd,
            env={**os.environ, **plan.environment, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
