"""One night in this process: `python -m assets.night`, which is how `nightshift night` reaches Dagster.

A program of its own, since the command line lives in the domain, which imports no Dagster. The run is stored in the
workspace's Dagster instance and looks in the UI like one that the schedule started.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo  # what a step's failure is told in; dagster gives it no public name

from assets.definitions import build_definitions
from assets.home import instance_of
from assets.metadata import REPORT
from assets.resources import NightLock
from pipelines import errors
from pipelines.config import Config
from pipelines.errors import ConfigError, LakeError, NightshiftError
from pipelines.invariants import DERIVED
from pipelines.locks import alone
from pipelines.workspace import Workspace

EXIT_FAILED = 1
MIN_FREE = 32 << 20
"""Bytes that must be free for a night to begin: Dagster's and MLflow's stores alone grow by several MB, and a store that
meets a full disk says so in a hundred lines."""

_FULL = ("No space left on device", "database or disk is full", "Disk quota exceeded")
_BROKEN = ("file is not a database", "database disk image is malformed")
_BROKEN_STORE = (
    "Dagster's store {home} is damaged; nothing of nightshift's lies only there: move it away and run the same command again"
)


def run_night(folder: Path, night: str, *, again: bool = False) -> dict[str, Any]:
    """Run the nightly job for a day; returns `success`, `reports` by asset, `seconds` by asset and, if so, `failed`."""
    first = Config.read(folder).lake.first_day.isoformat()
    definitions = build_definitions(folder, night_lock=NightLock(folder=str(folder), held_by_caller=True))
    job = definitions.resolve_job_def("nightly")
    with instance_of(folder) as instance:
        if job.partitions_def is None or not job.partitions_def.has_partition_key(night):
            raise ConfigError(f"{night} is no night of this workspace: nights run from {first} ([lake] first_day) to today, UTC")
        result = job.execute_in_process(
            partition_key=night,
            instance=instance,
            raise_on_error=False,
            run_config={
                "ops": {"batches__batches": {"config": {"again": again}}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},  # failures are told in one line below
            },
        )
    return {
        "night": night,
        "run_id": result.run_id,
        "success": result.success,
        "reports": _reports(result),
        "seconds": _seconds(result),
        "failed": None if result.success else _failed(result),
    }


def _reports(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    found = {}
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        if REPORT in materialization.metadata:
            found[materialization.asset_key.to_user_string()] = materialization.metadata[REPORT].value
    return found


def _seconds(result: dg.ExecuteInProcessResult) -> dict[str, float]:
    times: dict[str, dict[str, float]] = {}
    for record in result.get_step_success_events():
        times[record.step_key or ""] = {"seconds": record.step_success_data.duration_ms / 1000}
    return {step.replace("__", "/"): entry["seconds"] for step, entry in times.items()}


def _failed(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Step, one line and exit code of the first failure; a blocking check that found something is one."""
    for event in result.get_step_failure_events():
        error = _told(event.step_failure_data.error)
        if error is None:
            continue
        lines = [line.strip() for line in error.message.strip().splitlines()]
        message = re.sub(rf"^(\w+\.)*{re.escape(error.cls_name or '')}:", "", " ".join(lines)).strip()
        if error.cls_name == "DagsterAssetCheckFailedError":  # not public in dagster; the check is named below
            break
        kind = _kind(error)
        return {
            "step": (event.step_key or "").replace("__", "/"),
            "error": error.cls_name,
            "message": f"{error.cls_name}: {message}" if kind is None else message,
            "stack": error.to_string() if kind is None else None,
            "exit_code": EXIT_FAILED if kind is None else kind.exit_code,
        }
    for event in result.all_events:
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION and not event.asset_check_evaluation_data.passed:
            evaluation = event.asset_check_evaluation_data
            return {
                "step": evaluation.asset_key.to_user_string(),
                "error": "AssetCheck",
                "message": f"the check {evaluation.check_name} failed; `nightshift doctor` names what breaks it"
                + (
                    ", and `nightshift replay --all` shows what deriving it again would mend"
                    if evaluation.check_name in DERIVED
                    else ""
                ),
                "stack": None,
                "exit_code": EXIT_FAILED,
            }
    return {"step": None, "error": "unknown", "message": "the run failed without a step", "stack": None, "exit_code": EXIT_FAILED}


def _failed_outside(problem: Exception) -> dict[str, Any]:
    """The same for what failed outside all steps: the lock, the settings, Dagster's own store."""
    failed = {"step": None, "error": type(problem).__name__, "message": str(problem), "stack": None, "exit_code": EXIT_FAILED}
    if isinstance(problem, NightshiftError):
        return {**failed, "exit_code": problem.exit_code}
    stack = "".join(traceback.format_exception(problem))
    return {**failed, "message": f"{type(problem).__name__}: {problem}", "stack": stack}


def _full(folder: Path) -> str:
    free = shutil.disk_usage(folder).free >> 20
    return (
        f"the disk of {folder} is full ({free} MB free, a night wants {MIN_FREE >> 20} at the very least); "
        "nothing was lost: make room and run the same command again"
    )


def _told(error: SerializableErrorInfo | None) -> SerializableErrorInfo | None:
    """Of an error and its causes the first that nightshift raised on purpose, since that one says what to do; else the last."""
    while error is not None and _kind(error) is None and error.cause is not None:
        error = error.cause
    return error


def _kind(error: SerializableErrorInfo) -> type[NightshiftError] | None:
    kind = getattr(errors, error.cls_name or "", None)
    return kind if isinstance(kind, type) and issubclass(kind, NightshiftError) else None


def main() -> None:
    """Command line of this program."""
    parser = argparse.ArgumentParser(prog="python -m assets.night", description=__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--night", required=True, help="YYYY-MM-DD")
    parser.add_argument("--again", action="store_true", help="train on consumed groups once more; the checkpoint is marked")
    parser.add_argument("--result", type=Path, required=True, help="file for the outcome as JSON")
    arguments = parser.parse_args()
    try:
        Workspace.open(arguments.workspace)
        if shutil.disk_usage(arguments.workspace).free < MIN_FREE:
            raise LakeError(_full(arguments.workspace))
        with alone(arguments.workspace / ".night.lock", "a night of this workspace"):
            outcome = run_night(arguments.workspace, arguments.night, again=arguments.again)
    except Exception as problem:  # whoever asked for the night gets its outcome, whatever went wrong
        outcome = {"night": arguments.night, "success": False, "failed": _failed_outside(problem)}
    stack = "" if outcome["success"] else outcome["failed"]["stack"] or ""
    if "sqlite3.DatabaseError" in stack and any(sign in stack for sign in _BROKEN):
        outcome["failed"] |= {"message": _BROKEN_STORE.format(home=arguments.workspace / ".dagster"), "stack": None}
    if any(sign in stack for sign in _FULL):
        outcome["failed"] |= {"message": _full(arguments.workspace), "stack": None}
    arguments.result.write_text(json.dumps(outcome), encoding="utf-8")
    sys.exit(0 if outcome["success"] else 1)


if __name__ == "__main__":
    main()
