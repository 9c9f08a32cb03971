"""Stage 6 in Dagster: the trainer as a child process, seen through Dagster Pipes."""

import dagster as dg

from assets.metadata import facts
from assets.resources import LocalTrainer, WorkspaceResource


def build(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets of the stage."""

    @dg.asset(
        key=["training", "run"],
        deps=[["batches", "batches"]],
        partitions_def=days,
        group_name="training",
        kinds={"torch", "peft"},
        description="GRPO on a LoRA adapter over the batches that wait; the same batches and settings are never trained twice.",
    )
    def run(context: dg.AssetExecutionContext, workspace: WorkspaceResource, trainer: LocalTrainer) -> dg.MaterializeResult:
        from pipelines import training

        opened = workspace.open()
        plan = training.plan(opened, context.partition_key)
        if plan.done or plan.why_nothing is not None:
            return dg.MaterializeResult(metadata=facts(training.finish(opened, plan, 0)))
        returncode, reported = trainer.run(context, opened, plan)
        report = training.finish(opened, plan, returncode)
        return dg.MaterializeResult(metadata={**(reported.metadata or {}), **facts(report)})

    return [run]
