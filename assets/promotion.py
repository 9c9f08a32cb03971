"""Stage 10 in Dagster: the gate."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["promotion", "decision"],
        deps=[["evaluation", "results"], ["monitors", "signals"]],
        partitions_def=days,
        group_name="promotion",
        kinds={"deltalake", "mlflow"},
        description="Promote where the held-out difference is certain enough, else hold with the reason; the champion is the last row.",
    )
    def decision(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.promotion import decide

        return dg.MaterializeResult(metadata=facts(decide(workspace.open(), context.partition_key)))

    return [decision]
