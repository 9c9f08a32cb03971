"""The wiring, on one screen: ten stages, their checks, three jobs, one schedule, one sensor, three resources."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from assets import (
    batches,
    checkpoints,
    checks,
    evaluation,
    groups,
    jobs,
    landing,
    monitors,
    partitions,
    promotion,
    rewards,
    training,
    trajectories,
)
from assets.resources import LocalTrainer, NightLock, WorkspaceResource, workspace_folder
from assets.stages import STAGES
from pipelines.config import Config

__all__ = ["STAGES", "build_definitions", "defs"]

_MODULES = (
    landing,
    trajectories,
    groups,
    rewards,
    batches,
    training,
    checkpoints,
    evaluation,
    monitors,
    promotion,
)


def build_definitions(folder: Path, *, night_lock: NightLock | None = None) -> dg.Definitions:
    """Everything that Dagster shall know of one workspace."""
    config = Config.read(folder)
    days = partitions.daily(config.lake.first_day)
    all_jobs, schedules, sensors = jobs.build(config, folder, days)
    return dg.Definitions(
        assets=[asset for module in _MODULES for asset in module.build(days)],
        asset_checks=checks.build(),
        jobs=all_jobs,
        schedules=schedules,
        sensors=sensors,
        resources={
            "workspace": WorkspaceResource(folder=str(folder)),
            "trainer": LocalTrainer(),
            "night_lock": night_lock or NightLock(folder=str(folder)),
        },
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions of the workspace in NIGHTSHIFT_WORKSPACE; what `dagster` and `make dev` load."""
    return build_definitions(workspace_folder())
