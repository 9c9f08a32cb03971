"""Stage 4 in Dagster: verifiers and judge, combined. `rescored` is the same for another rubric and never trains."""

import dagster as dg

from assets.metadata import facts
from assets.partitions import RUBRICS, day_by_rubric, rubric_key
from assets.resources import WorkspaceResource

RESCORED = dg.AssetKey(["rewards", "rescored"])


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["rewards", "rewards"],
        deps=[["groups", "groups"]],
        partitions_def=days,
        group_name="rewards",
        kinds={"deltalake", "duckdb", "litellm"},
        description="Verdicts, judgements and the reward that they make, for each member of each group, under the rubric in force.",
    )
    def rewards(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.rewards.score import score

        opened = workspace.open()
        report = score(opened, context.partition_key)
        rubric = rubric_key(opened.config.judge.rubric)
        context.instance.add_dynamic_partitions(str(RUBRICS.name), [rubric])
        cell = dg.MultiPartitionKey({"day": context.partition_key, "rubric": rubric})
        context.instance.report_runless_asset_event(
            dg.AssetMaterialization(RESCORED, partition=cell, metadata={"rubric_hash": report.rubric_hash})
        )
        return dg.MaterializeResult(metadata=facts(report))

    @dg.asset(
        key=RESCORED,
        deps=[["groups", "groups"]],
        partitions_def=day_by_rubric(days),
        group_name="rewards",
        kinds={"deltalake", "duckdb", "litellm"},
        description="Rewards of one day under one rubric; a backfill writes rows beside the old ones and trains nothing.",
    )
    def rescored(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.rewards.score import score

        cell = context.partition_key
        assert isinstance(cell, dg.MultiPartitionKey)
        day, rubric = cell.keys_by_dimension["day"], rubric_key(cell.keys_by_dimension["rubric"])
        return dg.MaterializeResult(metadata=facts(score(workspace.open(), day, rubric=rubric, day=day)))

    return [rewards, rescored]
