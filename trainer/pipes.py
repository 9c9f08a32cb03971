"""Reports to whoever started the trainer: lines on standard output and, under Dagster, messages through Pipes.

The only file that imports dagster_pipes, and only where Dagster started the process. Nothing is ever read from it: the
configuration is a file, so that the same command works by hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainer.contract import CheckpointManifest

if TYPE_CHECKING:
    from trainer.step import StepMetrics

CONTEXT_VARIABLE = "DAGSTER_PIPES_CONTEXT"


class Report:
    """Where progress goes; `pipes` is an open Pipes context, or None outside Dagster."""

    def __init__(self, pipes: Any = None) -> None:
        self._pipes = pipes

    def line(self, text: str) -> None:
        """One line of progress."""
        print(text, flush=True)
        if self._pipes is not None:
            self._pipes.log.info(text)

    def step(self, metrics: StepMetrics) -> None:
        """An optimiser step is done."""
        self.line(
            f"step {metrics.step}/{metrics.num_steps}: loss {metrics.loss:+.4f}, clipped {metrics.clip_fraction:.1%}, "
            f"ess {metrics.ess:.2f}, {metrics.num_tokens} tokens, {metrics.seconds:.1f} s"
        )

    def checkpoint(self, manifest: CheckpointManifest, *, reused: bool) -> None:
        """The run's checkpoint is there; under Dagster it becomes metadata of the asset's materialisation."""
        self.line(f"checkpoint {manifest.checkpoint_id} " + ("was already there" if reused else "written"))
        if self._pipes is not None and self._pipes.is_asset_step and len(self._pipes.asset_keys) == 1:
            self._pipes.report_asset_materialization(
                metadata={
                    "checkpoint_id": manifest.checkpoint_id,
                    "run_id": manifest.run_id,
                    "num_steps": manifest.num_steps,
                    "num_trained_tokens": manifest.num_trained_tokens,
                    "reused": reused,
                    **manifest.metrics,
                }
            )


@contextmanager
def reporting() -> Iterator[Report]:
    """A Report, connected to Dagster exactly where Dagster started this process."""
    if CONTEXT_VARIABLE not in os.environ:
        yield Report()
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield Report(pipes)
