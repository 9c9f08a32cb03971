"""Stage 1 in Dagster: one unpartitioned asset driven by offsets; running it again takes in nothing twice."""

import dagster as dg

from assets.metadata import facts
from assets.resources import WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""
    del days  # landing takes in whatever is new, of any day

    @dg.asset(
        key=["landing", "records"],
        group_name="landing",
        kinds={"deltalake"},
        description="Harness logs from [[sources]], exactly once and redacted; what cannot be read goes to landing/quarantine.",
    )
    def records(workspace: WorkspaceResource) -> dg.MaterializeResult:
        from pipelines.landing.land import land

        return dg.MaterializeResult(metadata=facts(land(workspace.open())))

    return [records]
