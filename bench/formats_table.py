"""What nightshift reads out of a tree of logs, folder by folder, as the Markdown table of docs/formats.md.

    python -m bench.formats_table ../shared/logs [--write docs/formats.md]

Every folder right under the tree is taken in by itself, in a new workspace, and its records are counted back: each is in a
trajectory's provenance, left out of it with a kind, skipped with a reason, or in quarantine with a reason (I1). Exit 1 where
a record is in none, in two, or landed and cannot be read by its parser.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.ingest import ingest
from pipelines.init import make_workspace
from pipelines.landing.format import GIVES
from pipelines.landing.registry import describe
from pipelines.workspace import Workspace

BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"
COLUMNS = ("folder", "files", "formats", "records", "trajectories", "left out", "skipped", "quarantined", "outcomes", "token ids")

_RECORDS = """
WITH held AS (SELECT DISTINCT unnest(record_ids) AS record_id FROM trajectories.trajectories)
SELECT CASE
        WHEN r.skip_reason IS NOT NULL THEN 'skipped'
        WHEN h.record_id IS NOT NULL AND d.record_id IS NULL THEN 'held'
        WHEN h.record_id IS NULL AND d.record_id IS NOT NULL THEN 'left'
        ELSE 'misplaced' END AS place,
    coalesce(r.skip_reason, d.kind) AS reason, count(*)::BIGINT AS num_records
FROM landing.records AS r
LEFT JOIN held AS h ON h.record_id = r.record_id
LEFT JOIN trajectories.duplicates AS d ON d.record_id = r.record_id
GROUP BY ALL ORDER BY ALL
"""
_TRAJECTORIES = """
SELECT count(*)::BIGINT AS num_trajectories, count(outcome_logged)::BIGINT AS num_outcomes,
    count(*) FILTER (outcome = 1000000)::BIGINT AS num_best, count(fault)::BIGINT AS num_faults,
    count(*) FILTER (num_sampled_tokens > 0)::BIGINT AS num_with_ids, count(link)::BIGINT AS num_linked
FROM trajectories.trajectories
"""
_QUARANTINE = "SELECT reason, count(*)::BIGINT AS num_records FROM landing.quarantine GROUP BY ALL ORDER BY ALL"


def counted(folder: Path) -> tuple[list[str], int]:
    """The table's row for one folder, and how many of its records are in no place, in two, or not to be read by their parser."""
    with tempfile.TemporaryDirectory() as scratch:
        workspace = make_workspace(Path(scratch) / "workspace")
        answer = ingest(workspace, [folder])
        records = _rows(workspace, _RECORDS)
        (told,) = _rows(workspace, _TRAJECTORIES)
        quarantined = {row["reason"]: row["num_records"] for row in _rows(workspace, _QUARANTINE)}
    places: dict[str, Counter[str]] = {place: Counter() for place in ("held", "left", "skipped", "misplaced")}
    for row in records:
        places[row["place"]][row["reason"] or ""] += row["num_records"]
    trajectories = str(told["num_trajectories"])
    extra = [f"{told[key]} {word}" for key, word in (("num_linked", "linked"), ("num_faults", "faults")) if told[key]]
    if extra:
        trajectories += f" ({', '.join(extra)})"
    outcomes = f"{told['num_outcomes']} ({told['num_best']} best)" if told["num_outcomes"] else "–"
    row = [
        folder.name,
        str(sum(answer["formats"].values())),
        _listed(answer["formats"]),
        str(sum(found.total() for found in places.values())),
        trajectories,
        _listed(places["left"]),
        _listed(places["skipped"]),
        _listed(quarantined),
        outcomes,
        str(told["num_with_ids"] or "–"),
    ]
    return row, places["misplaced"].total() + places["left"]["unreadable"]


def gives() -> list[str]:
    """A Markdown table of what each format's records can give."""
    lines = [f"| format | {' | '.join(word.replace('_', ' ') for word in GIVES)} | written by |", "|---" * (len(GIVES) + 2) + "|"]
    for format in describe():
        marks = " | ".join("yes" if word in format["gives"] else "" for word in GIVES)
        lines.append(f"| `{format['name']}` | {marks} | {format['what']} |")
    return lines


def main() -> None:
    """Print the tables, or write them between the marks of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this Markdown file")
    asked = parser.parse_args()
    lines = [*gives(), "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    num_misplaced = 0
    for folder in sorted(path for path in asked.tree.iterdir() if path.is_dir()):
        row, misplaced = counted(folder)
        num_misplaced += misplaced
        lines.append(f"| {' | '.join(row)} |")
        print(f"{folder.name}: {row[3]} records, {row[4]} trajectories", file=sys.stderr)
    text = "\n".join(lines)
    if asked.write is None:
        print(text)
    else:
        before, rest = asked.write.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        asked.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    if num_misplaced:
        sys.exit(f"{num_misplaced} records are in no place, in two, or cannot be read by the parser of their format")


def _rows(workspace: Workspace, sql: str) -> list[dict[str, Any]]:
    return workspace.queries.ask(sql).to_pylist()


def _listed(counts: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{name or 'other'} {number}" for name, number in sorted(counts.items())) or "–"


if __name__ == "__main__":
    main()
