"""Jobs, the schedule and the sensor.

`nightly` runs in one process, since the stages wait for one another anyway and starting a process per stage costs more
than most of them take; one run also means that a blocking check stops everything behind it. Runs of it carry the tag
NIGHT, of which dagster.yaml lets one run at a time: a second tick waits in the queue, and is not lost.
"""

import datetime
import hashlib
import zoneinfo
from pathlib import Path

import dagster as dg
from dagster._utils.schedules import is_valid_cron_schedule  # the check that dg.schedule makes, without a public name

from assets.rewards import RESCORED
from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.landing.watching import Seen, look
from pipelines.workspace import Workspace

NIGHT = "nightshift/night"


def build(config: Config, folder: Path, days: dg.DailyPartitionsDefinition) -> tuple[list, list, list]:
    """Jobs, schedules and sensors of a workspace."""
    nightly = dg.define_asset_job(
        "nightly",
        selection=dg.AssetSelection.all() - dg.AssetSelection.assets(RESCORED),
        partitions_def=days,
        executor_def=dg.in_process_executor,
        tags={NIGHT: "one"},
        description="All ten stages for one night: from the log to a decision.",
    )
    land = dg.define_asset_job(
        "land",
        selection=dg.AssetSelection.assets(["landing", "records"]),
        executor_def=dg.in_process_executor,
        description="Take in what is new in the sources; trains nothing.",
    )
    rescore = dg.define_asset_job(
        "rescore",
        selection=dg.AssetSelection.assets(RESCORED),
        executor_def=dg.in_process_executor,
        description="Rewards of one day under another rubric; trains nothing.",
    )
    status = dg.DefaultScheduleStatus.RUNNING if config.schedule.enabled else dg.DefaultScheduleStatus.STOPPED

    if not is_valid_cron_schedule(config.schedule.cron):
        raise ConfigError(f"[schedule] cron {config.schedule.cron!r} is none; write five fields, such as `0 2 * * *`")

    @dg.schedule(
        name="every_night",
        job=nightly,
        cron_schedule=config.schedule.cron,
        execution_timezone=config.schedule.timezone,
        default_status=status,
        description="The night of the day before the tick. Missed while off: the newest missed tick is run once.",
    )
    def every_night(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        tick = context.scheduled_execution_time.astimezone(zoneinfo.ZoneInfo(config.schedule.timezone))
        night = (tick.date() - datetime.timedelta(days=1)).isoformat()
        return dg.RunRequest(run_key=f"night-{context.scheduled_execution_time.isoformat()}", partition_key=night)

    @dg.sensor(
        name="new_log_lines",
        job=land,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING if config.schedule.enabled else dg.DefaultSensorStatus.STOPPED,
        description="Lands a source as soon as its files grow.",
    )
    def new_log_lines(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = look(Workspace.open(folder), None, Seen.of(context.cursor), resting=_num_resting(context) > 0)
        if found.changed:
            key = hashlib.sha256(found.seen.text().encode()).hexdigest()
            return dg.SensorResult([dg.RunRequest(run_key=key)], cursor=found.seen.text())
        said = "no file of the sources has changed and settled" if found.whole else "many files: the next tick goes on"
        return dg.SensorResult(skip_reason=said, cursor=found.seen.text())

    return [nightly, land, rescore], [every_night], [new_log_lines]


def _num_resting(context: dg.SensorEvaluationContext) -> int:
    """Documents without their end that the last landing left, by what it reported."""
    event = context.instance.get_latest_materialization_event(dg.AssetKey(["landing", "records"]))
    told = event.asset_materialization.metadata.get("resting") if event is not None and event.asset_materialization else None
    return told.value if told is not None and isinstance(told.value, int) else 0
