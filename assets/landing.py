"""Stage 1 in Dagster: the night's top-ups, then one unpartitioned asset driven by offsets, which takes in nothing twice."""

import dagster as dg

from assets.metadata import facts
from assets.resources import NightLock, WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["landing", "top_up"],
        partitions_def=days,
        group_name="landing",
        description="Tasks that an earlier night wanted, run again with the champion through the harness, within the night's budget.",
    )
    def top_up(context: dg.AssetExecutionContext, workspace: WorkspaceResource, night_lock: NightLock) -> dg.MaterializeResult:
        from pipelines.top_up import run

        del night_lock  # two nights must not spend one budget twice
        report = run(workspace.open(), context.partition_key)
        if report.problem is not None:
            context.log.warning(f"the night goes on without the rest of its top-ups: {report.problem}")
        return dg.MaterializeResult(metadata=facts(report))

    # unpartitioned: landing takes in whatever is new, of any day
    @dg.asset(
        key=["landing", "records"],
        deps=[["landing", "top_up"]],
        group_name="landing",
        kinds={"deltalake"},
        description="Harness logs from [[sources]], exactly once and redacted; what cannot be read goes to landing/quarantine.",
    )
    def records(workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.landing.land import land

        return dg.MaterializeResult(metadata=facts(land(workspace.open())))

    return [top_up, records]
