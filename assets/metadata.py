"""Reports as Dagster metadata: counts as numbers, counts by word as small tables, table versions, the whole report as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.reports import Report

REPORT = "report"
"""Metadata key of the whole report; the command line reads it back from a run."""


def plain(report: Report) -> dict[str, Any]:
    """A report as JSON-ready values."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(report).items()}


def facts(report: Report, **more: Any) -> dict[str, dg.MetadataValue]:
    """Metadata of a materialisation: `more`, then one entry per field that has a value, then `versions` and `report`."""
    found: dict[str, dg.MetadataValue] = {}
    fields = plain(report)
    versions = fields.pop("versions")
    for name, value in {**more, **fields, "versions": versions}.items():
        shown = _shown(name, value)
        if shown is not None:
            found[name] = shown
    found[REPORT] = dg.MetadataValue.json(plain(report))
    return found


_BAR = 24
"""Characters of the longest bar."""


def shares(name: str, counts: Mapping[str, int]) -> dict[str, dg.MetadataValue]:
    """Counts by word as a chart with bars, and each word's share as a number of its own, which Dagster plots over the nights."""
    total = sum(counts.values())
    if not total:
        return {}
    rows = [
        f"| {word} | `{'█' * max(1, round(_BAR * number / total)):<{_BAR}}` | {number / total:.1%} | {number:,} |"
        for word, number in counts.items()
        if number
    ]
    chart = "\n".join([f"| {name} | | share | number |", "|---|---|--:|--:|", *rows])
    numbers = {f"share_{word}": dg.MetadataValue.float(number / total) for word, number in counts.items()}
    return {name: dg.MetadataValue.md(chart), **numbers}


def _shown(name: str, value: Any) -> dg.MetadataValue | None:
    if isinstance(value, dg.MetadataValue):
        return value
    if value is None or value in ({}, []):
        return None
    if isinstance(value, bool):
        return dg.MetadataValue.bool(value)
    if isinstance(value, int):
        return dg.MetadataValue.int(value)
    if isinstance(value, float):
        return dg.MetadataValue.float(value)
    if name == "versions":
        return dg.MetadataValue.json(value)
    if isinstance(value, dict):
        rows = "\n".join(f"| {key} | {number} |" for key, number in value.items())
        return dg.MetadataValue.md(f"| {name} | |\n|---|---|\n{rows}")
    if isinstance(value, list):
        return dg.MetadataValue.json(value)
    return dg.MetadataValue.text(str(value))
