"""Stage 9 in Dagster: the night's signals."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["monitors", "signals"],
        deps=[["evaluation", "results"], ["rewards", "rewards"], ["batches", "batches"]],
        partitions_def=days,
        group_name="monitors",
        kinds={"deltalake", "duckdb"},
        description="What the night looked like in numbers, each ok, alarm or unmeasured, with a line that says what to do.",
    )
    def signals(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.monitors import measure

        return dg.MaterializeResult(metadata=facts(measure(workspace.open(), context.partition_key)))

    return [signals]
