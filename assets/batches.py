"""Stage 5 in Dagster: groups with spread are frozen into batches, each once."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


class BatchesConfig(dg.Config):
    """Run configuration of the stage."""

    again: bool = False
    """Freeze groups that were consumed before; the batch is marked, and its checkpoint cannot promote itself."""


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["batches", "batches"],
        deps=[["rewards", "rewards"]],
        partitions_def=days,
        group_name="batches",
        kinds={"parquet", "polars"},
        description="Token sequences with masks, behaviour logprobs and advantages; batches/lanes says where every attempt went.",
    )
    def batches(context: dg.AssetExecutionContext, config: BatchesConfig, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.batches import freeze

        return dg.MaterializeResult(metadata=facts(freeze(workspace.open(), context.partition_key, again=config.again)))

    return [batches]
