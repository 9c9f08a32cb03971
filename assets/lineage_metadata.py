"""A checkpoint's lineage as metadata: a summary, and the source files with their lines."""

from __future__ import annotations

import dagster as dg

from pipelines.lineage import backward
from pipelines.show import ranges
from pipelines.workspace import Workspace


def lineage_of(workspace: Workspace, policy_version: str | None) -> dict[str, dg.MetadataValue]:
    """Metadata of the checkpoint asset; empty where the night made no checkpoint."""
    if policy_version is None:
        return {}
    story = backward(workspace, policy_version)
    by_file: dict[str, list[int]] = {}
    for source in story["sources"]:
        by_file.setdefault(source["file"], []).append(source["line"])
    rows = [f"| `{file}` | {ranges(lines)} | {len(set(lines))} |" for file, lines in sorted(by_file.items())]
    table = "\n".join(["| source file | lines | number of lines |", "|---|---|---|", *rows])
    return {
        "source_lines": dg.MetadataValue.md(table),
        "num_source_lines": dg.MetadataValue.int(sum(len(set(lines)) for lines in by_file.values())),
        "parents": dg.MetadataValue.json(story["parents"]),
        "batches": dg.MetadataValue.json(story["batches"]),
        "num_groups": dg.MetadataValue.int(len(story["groups"])),
        "num_trajectories": dg.MetadataValue.int(len(story["trajectories"])),
        "ask": dg.MetadataValue.text(f"nightshift lineage {policy_version}"),
    }
