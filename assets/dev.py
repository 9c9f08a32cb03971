"""`make dev`: Dagster's webserver and daemon on loopback, over one workspace."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from assets.home import make_home
from assets.resources import CHECKOUT, WORKSPACE_VARIABLE
from pipelines.errors import NightshiftError
from pipelines.workspace import Workspace


def main() -> None:
    """Becomes `dagster dev`, so that ending this process ends webserver and daemon."""
    parser = argparse.ArgumentParser(prog="python -m assets.dev", description=__doc__)
    default = os.environ.get(WORKSPACE_VARIABLE) or str(CHECKOUT / ".demo")
    parser.add_argument("--workspace", type=Path, default=Path(default))
    parser.add_argument("--port", type=int, default=3000)
    arguments = parser.parse_args()
    folder = arguments.workspace.resolve()
    try:
        Workspace.open(folder)
    except NightshiftError as problem:
        sys.exit(
            f"make dev: {problem}\n(NIGHTSHIFT_WORKSPACE=… make dev takes another workspace; `make demo` makes one in .demo)"
        )
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(make_home(folder)),
        WORKSPACE_VARIABLE: str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")])),
    }
    program = str(Path(sys.executable).with_name("dagster"))
    # Dagster has no accounts: loopback only
    command = [program, "dev", "-m", "assets.definitions", "-h", "127.0.0.1", "-p", str(arguments.port)]
    print(f"workspace {folder}: http://127.0.0.1:{arguments.port}", flush=True)
    os.chdir(environment["DAGSTER_HOME"])  # in the checkout Dagster would warn of the dagster.yaml that lies there
    os.execve(program, command, environment)


if __name__ == "__main__":
    main()
