"""Stage 2 in Dagster: the days touched by landing are rebuilt from their records."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["trajectories", "trajectories"],
        deps=[["landing", "records"]],
        partitions_def=days,
        group_name="trajectories",
        kinds={"deltalake", "duckdb"},
        description="Records made uniform, one row per attempt; repeated deliveries stand in trajectories/duplicates.",
    )
    def trajectories(workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.trajectories import build as build_trajectories

        return dg.MaterializeResult(metadata=facts(build_trajectories(workspace.open())))

    return [trajectories]
