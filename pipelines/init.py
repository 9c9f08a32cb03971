"""`nightshift init`: a new workspace from examples/blank, with its own keys."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

from pipelines.config import CONFIG_FILE
from pipelines.errors import ConfigError
from pipelines.workspace import KEYS, Workspace, make_keys

CHECKOUT = Path(__file__).resolve().parents[1]
BLANK = CHECKOUT / "examples" / "blank"
DEFAULT_RUBRIC = CHECKOUT / "pipelines" / "rewards" / "default_rubric.md"

IGNORED = f"{KEYS}/\nlake/\nlogs/\nruns/\nbatches/\nmlflow.db\nmlartifacts/\n.dagster/\n.engine.json\n.alias\n*.lock\n"
"""What of a workspace does not belong into its owner's git: keys, logs and everything derived."""


def make_workspace(folder: Path, *, template: Path = BLANK, first_day: datetime.date | None = None) -> Workspace:
    """Write a workspace and open it; ConfigError where one is there already."""
    if (folder / CONFIG_FILE).exists():
        raise ConfigError(
            f"{folder} is a workspace already (it holds {CONFIG_FILE}); choose another folder or remove it yourself"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(template.glob("*")):
        if path.suffix in {".py", ".md"} and path.name not in {"README.md", "tickets.py"}:
            shutil.copyfile(path, folder / path.name)
    day = first_day or datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=30)
    text = (template / CONFIG_FILE).read_text(encoding="utf-8").replace("FIRST_DAY", day.isoformat())
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "rubrics").mkdir(exist_ok=True)
    shutil.copyfile(DEFAULT_RUBRIC, folder / "rubrics" / "default.md")
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    make_keys(folder)
    # last, since a folder with this file counts as a workspace
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    return Workspace.open(folder)
