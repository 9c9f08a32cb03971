"""Stage 3 in Dagster: siblings are sealed into groups; the night's last output lists what a top-up should run."""

import dagster as dg

from assets.metadata import facts, shares
from assets.resources import NightLock, WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["groups", "groups"],
        deps=[["trajectories", "trajectories"]],
        partitions_def=days,
        group_name="groups",
        kinds={"deltalake", "duckdb"},
        description="Attempts at one task under one context, sealed for ever; the split of each task is drawn once.",
    )
    def groups(context: dg.AssetExecutionContext, workspace: WorkspaceResource, night_lock: NightLock) -> dg.MaterializeResult:
        from pipelines.groups import assign_splits, reach, seal

        del night_lock  # asking for it is what holds it, until the run ends
        opened = workspace.open()
        assign_splits(opened, context.partition_key)
        sealed = seal(opened, context.partition_key, judged=True)
        reached = shares("reached_a_group", reach(opened, context.partition_key))
        return dg.MaterializeResult(metadata=facts(sealed, **reached))

    @dg.asset(
        key=["groups", "wanted"],
        deps=[["promotion", "decision"]],
        partitions_def=days,
        group_name="promotion",  # drawn where it happens; within `groups` it would bend the graph into a circle
        kinds={"deltalake", "duckdb"},
        description="Tasks that lack siblings or spread, most useful first: what the next night's top-up should run.",
    )
    def wanted(context: dg.AssetExecutionContext, workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.groups import want

        return dg.MaterializeResult(metadata=facts(want(workspace.open(), context.partition_key)))

    return [groups, wanted]
