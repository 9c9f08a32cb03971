"""Stage 7 in Dagster: the night's checkpoint in MLflow and in the lake, with the log lines that it learned from."""

import dagster as dg

from assets.lineage_metadata import lineage_of
from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["checkpoints", "checkpoint"],
        deps=[["training", "run"]],
        partitions_def=days,
        group_name="checkpoints",
        kinds={"mlflow", "deltalake"},
        description="A model version in MLflow with its parents, batches and edges, down to file and line of the log.",
    )
    def checkpoint(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.checkpoints import register

        opened = workspace.open()
        report = register(opened, context.partition_key)
        return dg.MaterializeResult(metadata=facts(report, **lineage_of(opened, report.policy_version)))

    return [checkpoint]
