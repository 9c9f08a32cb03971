"""`nightshift ingest`: stages 1 to 3 at once, and what the log is worth."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import groups, tasks, trajectories
from pipelines.errors import NightshiftError
from pipelines.landing.land import land, survey
from pipelines.landing.watching import Seen, look
from pipelines.nights import CHECKOUT, checkout_environment
from pipelines.reports import Report
from pipelines.workspace import Workspace

WATCH_SECONDS = 2.0
"""How often files are looked at in watch mode."""


def ingest(
    workspace: Workspace, paths: Sequence[Path] | None, *, format: str | None = None, dry_run: bool = False
) -> dict[str, Any]:
    """Land, build, seal what is full; returns the words of `ingest --json`."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    tasks.rules_of(workspace)  # one that cannot be used stops it before anything is written
    landed = survey(workspace, paths, format=format) if dry_run else land(workspace, paths, format=format)
    found: dict[str, Any] = {
        "records": landed.records,
        "quarantined": landed.quarantined,
        "skipped": landed.skipped,
        "formats": landed.formats,
        "redactions": landed.redactions,
        "why_nothing": landed.why_nothing,
        "waiting": landed.waiting,
        "waiting_files": landed.waiting_files,
        "resting": landed.resting,
    }
    if dry_run:
        return {**found, "dry_run": True}
    built = trajectories.build(workspace)
    groups.assign_splits(workspace, day)
    sealed = groups.seal(workspace, day, judged=False)
    overview = groups.overview(workspace)
    reports = {"landing/records": landed, "trajectories/trajectories": built, "groups/groups": sealed}
    _show_in_dagster(workspace, reports, day)
    return {
        **found,
        "duplicates": built.duplicates,
        "left_out": built.left_out,
        "faults": built.faults,
        "linked": built.linked,
        "gaps": built.gaps,
        "identical": built.identical,
        "named_by": built.named_by,
        "named_otherwise": sealed.named_otherwise,
        "trajectories": overview.trajectories,
        "groups": overview.groups,
        "groups_mixed": overview.groups_mixed,
        "groups_all_pass": overview.groups_all_pass,
        "groups_all_fail": overview.groups_all_fail,
        "groups_unknown": overview.groups_unknown,
        "eligible_for": overview.eligible_for,
        "reasons": overview.reasons,
    }


def watch(
    workspace: Workspace,
    paths: Sequence[Path] | None,
    *,
    format: str | None = None,
    stopped: Callable[[float], bool],
    seconds: float = WATCH_SECONDS,
) -> Iterator[dict[str, Any]]:
    """`ingest` whenever a file has changed; yields what each call that took something in returned.

    `stopped` waits so many seconds and says whether to end; it is asked between two calls, never in one. What cannot be
    read is raised in the first round; later it is yielded as `problem`, and tried again with the next change.
    """
    seen, first, resting, problem_said = Seen(), True, False, None
    while True:
        try:
            # a line is taken in as soon as it is there: nobody waits for a run of Dagster to begin
            found = look(workspace, paths, seen, resting=resting, settled_seconds=0, longest=math.inf)
            seen = found.seen
            if found.changed:
                taken = ingest(workspace, paths, format=format)
                resting = taken["resting"] > 0
                if taken["why_nothing"] is None:
                    yield taken
            problem_said = None
        except NightshiftError as problem:
            if first:
                raise
            if str(problem) != problem_said:
                yield {"problem": str(problem)}
            problem_said = str(problem)
        first = False
        if stopped(seconds):
            return


def _show_in_dagster(workspace: Workspace, reports: dict[str, Report], day: str) -> None:
    """Report what was done here as materialisations; a workspace that never met Dagster has nobody to tell."""
    if not (workspace.folder / ".dagster").exists():
        return
    content = {asset: dataclasses.asdict(report) for asset, report in reports.items()}
    command = [sys.executable, "-m", "assets.reported", "--workspace", str(workspace.folder), "--day", day]
    told = subprocess.run(
        command, input=json.dumps(content), text=True, capture_output=True, cwd=CHECKOUT, env=checkout_environment(), check=False
    )
    if told.returncode != 0:
        last = told.stderr.strip().splitlines()[-1:] or ["no message"]
        print(f"what was taken in is not shown in the Dagster UI ({last[0]})", file=sys.stderr)
