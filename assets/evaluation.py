"""Stage 8 in Dagster: challenger and champion on the same held-out tasks, through the harness."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["evaluation", "results"],
        deps=[["checkpoints", "checkpoint"]],
        partitions_def=days,
        group_name="evaluation",
        kinds={"deltalake"},
        description="Sampled answers of challenger and champion to tasks that were never trained on; known answers are reused.",
    )
    def results(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.evaluation import evaluate

        return dg.MaterializeResult(metadata=facts(evaluate(workspace.open(), context.partition_key)))

    return [results]
