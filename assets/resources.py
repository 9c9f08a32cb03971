"""Resources: what an asset asks for, vended as the plain objects of the domain."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from pipelines.locks import waiting
from pipelines.training import TrainingPlan, launch
from pipelines.workspace import Workspace

warnings.filterwarnings("ignore", category=dg.PreviewWarning)  # dagster warns of parts of Pipes that it calls itself

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

    def run(
        self, context: dg.AssetExecutionContext, workspace: Workspace, plan: TrainingPlan
    ) -> tuple[int, dg.MaterializeResult]:
        """Run the plan to its end; returns the exit code (-n: killed by signal n) and what the child reported."""
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
        ) as pipes:
            returncode = launch(workspace, plan, env=pipes.get_bootstrap_env_vars())
        reported = [result for result in pipes.get_results() if isinstance(result, dg.MaterializeResult)]
        return returncode, reported[-1] if reported else dg.MaterializeResult()
