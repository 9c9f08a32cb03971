"""Runs one night for the command line and the demo: the nightly Dagster job, in a process of its own.

The domain imports no Dagster, so the job is reached as a program (`python -m assets.night`); its outcome comes back as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipelines.errors import NightFailedError
from pipelines.workspace import Workspace

CHECKOUT = Path(__file__).resolve().parents[1]


def checkout_environment() -> dict[str, str]:
    """Environment of a child that imports this checkout from wherever it runs."""
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def run_night(workspace: Workspace, night: str, *, again: bool = False) -> dict[str, Any]:
    """Run a night to its decision; returns `night`, `run_id`, `reports` and `seconds` by asset. NightFailedError otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "assets.night", "--workspace", str(workspace.folder), "--night", night]
        command += ["--result", str(result), *(["--again"] if again else [])]
        returncode = subprocess.call(command, cwd=CHECKOUT, env=checkout_environment())
        if not result.exists():
            raise NightFailedError(
                f"the night {night} ended without an outcome (exit code {returncode}, a negative one is a signal); "
                "what it had finished is kept: run the same command again",
                exit_code=1,
                stack=None,
            )
        outcome = json.loads(result.read_text(encoding="utf-8"))
    if not outcome["success"]:
        failed = outcome["failed"]
        where = f"night {night}, {failed['step']}: " if failed["step"] else ""
        raise NightFailedError(where + failed["message"], failed["exit_code"], failed["stack"], night=night)
    return outcome
