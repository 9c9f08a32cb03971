"""The workspace's Dagster instance: DAGSTER_HOME is `<workspace>/.dagster`, its dagster.yaml a link to the checkout's.

Nothing that nightshift needs lies only there: lineage, decisions and offsets are in the lake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from assets.resources import CHECKOUT, WORKSPACE_VARIABLE


def make_home(folder: Path) -> Path:
    """Make the instance's folder and link the settings into it; keeps a dagster.yaml of the workspace's own."""
    home = folder / ".dagster"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if settings.is_symlink() and not settings.exists():
        settings.unlink()  # the checkout moved
    if not settings.exists():
        settings.symlink_to(CHECKOUT / "dagster.yaml")
    return home


@contextmanager
def instance_of(folder: Path) -> Iterator[dg.DagsterInstance]:
    """The opened instance of a workspace."""
    home = make_home(folder)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ[WORKSPACE_VARIABLE] = str(folder)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance
