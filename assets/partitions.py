"""Partitions: nights are days in UTC, and rescored rewards are day x rubric.

Dagster refuses a job whose assets have different partitions, so every asset of the nightly job is daily or
unpartitioned, and only `rewards/rescored`, in its own job, has two dimensions.
"""

from __future__ import annotations

import datetime
import re

import dagster as dg

from pipelines.errors import ConfigError

RUBRICS = dg.DynamicPartitionsDefinition(name="rubrics")

_RUBRIC_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def daily(first_day: datetime.date) -> dg.DailyPartitionsDefinition:
    """Days from the first one to today, today included (end_offset): a night by hand is for today."""
    return dg.DailyPartitionsDefinition(start_date=first_day.isoformat(), timezone="UTC", end_offset=1)


def day_by_rubric(days: dg.DailyPartitionsDefinition) -> dg.MultiPartitionsDefinition:
    """One cell per day and rubric; its keys read `2026-11-20|default`."""
    return dg.MultiPartitionsDefinition({"day": days, "rubric": RUBRICS})


def rubric_key(name: str) -> str:
    """A rubric's name as a partition key; partition keys reach queries, so only plain names pass."""
    if not _RUBRIC_KEY.fullmatch(name):
        raise ConfigError(f"rubric {name!r}: a rubric's name is lower-case letters, digits, - and _, at most 64")
    return name
