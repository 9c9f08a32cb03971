"""How answers look on a terminal: tables for lists, two columns for one thing, and one line that says what comes next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines import words
from pipelines.landing.format import GIVES
from pipelines.terminal import NOTHING, console, fields, table, text


def plain(report: Any) -> dict[str, Any]:
    """A report as JSON-ready values."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(report).items()}


def short(value: Any) -> str:
    """An id as far as a person needs it; the JSON answer holds it whole."""
    return NOTHING if value is None else str(value)[:12]


def new_workspace(content: dict[str, Any]) -> None:
    """After `init`."""
    fields({"workspace": content["workspace"], "files": content["files"]})
    console.print("\nThe keys in .keys/ belong into your backup: without the identity key the lake cannot be read on.")
    console.print(f"Next: cd {content['workspace']} && nightshift ingest PATH-OF-YOUR-LOG")


def ingested(content: dict[str, Any]) -> None:
    """After `ingest`."""
    files = text(content["formats"])
    if content.get("why_nothing"):
        read = f" Files read: {files}." if content["formats"] else ""
        console.print(escape(f"Nothing was new: {content['why_nothing']}.{read}"))
    else:
        fields(_taken_in(content))
    if content.get("waiting"):
        console.print(escape(_unfinished(content["waiting_files"])))
    if content.get("dry_run"):
        console.print("\nNothing was written (--dry-run).")
        return
    kinds = {kind: content[f"groups_{kind}"] for kind in ("mixed", "all_pass", "all_fail", "unknown")}
    table(
        "\nWhat the lake holds",
        ["", "number", "of which"],
        [("trajectories", content["trajectories"], content["eligible_for"]), ("groups", content["groups"], kinds)],
        numbers=["number"],
    )
    reasons = [(reason, number, words.ELIGIBLE.get(reason)) for reason, number in content["reasons"].items()]
    table(
        "\nLanes, from provenance alone",
        ["reason", "trajectories", "which means"],
        reasons,
        numbers=["trajectories"],
        whole=["reason"],
    )
    if not content["trajectories"]:
        console.print("\nNothing to group yet.")
    elif content["eligible_for"].get("grpo"):
        console.print("\nNext: nightshift night")
    else:
        console.print(
            "\nNothing here can train yet: only attempts of your own policy with the sampler's token ids and logprobs can (lane "
            "grpo), which the format `recorder` holds. What other models did counts under sft. `nightshift night` groups and "
            "scores it."
        )


def _unfinished(files: list[str]) -> str:
    named, more = ", ".join(files[:3]), f" and {len(files) - 3} more" if len(files) > 3 else ""
    return (
        f"Still being written, it seems: {named}{more}. What is finished of it was taken in; the rest is when its end is there, or, "
        "of a document, when nobody has written to it for [landing] at_rest_seconds."
    )


def _taken_in(content: dict[str, Any]) -> dict[str, Any]:
    """What one call took in: new records, those that no trajectory is made of, with the reason, and what was replaced."""
    told: dict[str, Any] = {"files": content["formats"], "new records": content["records"]}
    if content["skipped"]:
        told["skipped"] = f"{content['skipped']} more that are about an attempt and no part of it"
    if content["quarantined"]:
        told["quarantined"] = f"{content['quarantined']} that could not be read: nightshift quarantine"
    left_out = content.get("left_out") or {}
    if left_out:
        kinds = ", ".join(f"{number} {kind} ({words.LEFT_OUT.get(kind, kind)})" for kind, number in left_out.items())
        told["left out"] = f"{content['duplicates']} records that no trajectory is made of: {kinds}"
    told["new trajectories"] = ", ".join(f"{content[word]} {said}" for word, said in _MADE.items() if content.get(word))
    told["redacted"] = content.get("redactions")
    return {name: value for name, value in told.items() if value not in (None, "", {})}


_MADE = {
    "faults": "ended in a fault of the harness",
    "linked": "come from another one (subagents, branches, compactions, continuations)",
    "gaps": "have turns that no record answers",
    "identical": "of their records are equal to another in every byte",
}


def formats(content: list[dict[str, Any]]) -> None:
    """The log formats: a column for each thing that records may carry."""
    drawn = [[row["name"], *("yes" if word in row["gives"] else "" for word in GIVES), row["what"]] for row in content]
    table("", ["format", *(word.replace("_", " ") for word in GIVES), "written by"], drawn)


def quarantine(content: list[dict[str, Any]]) -> None:
    """Rows of quarantine, one line each: the id is for `quarantine show`, which tells the rest."""
    if not content:
        console.print("quarantine is empty")
        return
    drawn = Table(title=None, header_style="dim", box=None, pad_edge=False)
    for column, width in (("record_id", 36), ("reason", 14), ("file:line", 20), ("detail", 20)):
        drawn.add_column(column, no_wrap=True, overflow="ellipsis", min_width=width)  # an id that is cut names nothing
    for row in content:
        place = "/".join(Path(str(row["source"])).parts[-2:])
        drawn.add_row(*(escape(str(cell)) for cell in (row["record_id"], row["reason"], f"{place}:{row['line']}", row["detail"])))
    console.print(drawn)
    console.print("\nNext: nightshift quarantine show RECORD_ID, or retry after a parser or a setting was mended")


def replayed(content: dict[str, Any]) -> None:
    """What a replay would change, or did."""
    if content["why_nothing"] and not content["redacted"]:
        console.print(content["why_nothing"])
        return
    console.print(f"Bundles read again: {content['bundles']}\n")
    table(
        "",
        ["trajectories", "number"],
        [(kind, content[kind]) for kind in ("added", "changed", "removed", "unchanged")],
        numbers=["number"],
    )
    if content["columns"]:
        table("\nWhat is different", ["column", "trajectories"], list(content["columns"].items()), numbers=["trajectories"])
    rests = {
        **({"records that belong elsewhere, by what is new of them": content["placed"]} if content["placed"] else {}),
        **({"records that stay where they are": content["unplaced"]} if content["unplaced"] else {}),
        "records that can be read now": content["readable"],
        "records that cannot": content["unreadable"],
        "groups that fall stale": len(content["stale_groups"]),
        "their rewards": content["stale_rewards"],
        "checkpoints that learned from them": [entry["policy_version"] for entry in content["checkpoints"]],
        "redacted anew": content["redacted"],
        "batches that may still hold it": content["holding"],
        "checkpoints that learned from those": [entry["policy_version"] for entry in content["holding_checkpoints"]],
    }
    console.print()
    fields(rests)
    if content["checkpoints"]:
        console.print("\nThose checkpoints keep citing the batches that they used.")
    if not content["applied"]:
        console.print("\nNothing was written. Next: the same command with --apply")
    elif content["redacted"]:
        console.print("\nDerived again. Older versions of what was redacted anew are deleted, since they held the old text.")
    else:
        console.print("\nDerived again. Older versions of the tables stay readable until vacuum.")


def retried(content: dict[str, Any]) -> None:
    """After `quarantine retry`."""
    fields({**content, "left": len(content["left"])})


def lanes(content: dict[str, Any]) -> None:
    """Counts per lane and reason."""
    if not content["nights"]:
        console.print("no night has run yet: `nightshift night`")
        return
    if not content["lanes"]:
        newest = content["nights"][-SHOWN_NIGHTS:]
        older = len(content["nights"]) - len(newest)
        console.print(
            f"no night {content['night']} has run; there is {', '.join(newest)}" + (f" and {older} older" if older else "")
        )
        return
    counted = [
        (entry["lane"], entry["reason"], entry["trajectories"], words.LANE.get(entry["reason"])) for entry in content["lanes"]
    ]
    table(
        f"Night {content['night']}",
        ["lane", "reason", "trajectories", "which means"],
        counted,
        numbers=["trajectories"],
        whole=["lane", "reason"],
    )


SHOWN_NIGHTS = 10
"""Nights that are named where another was asked for, the newest."""


def wanted(content: list[dict[str, Any]], *, every: bool = False) -> None:
    """Tasks that a top-up should run, the first of them unless `every`."""
    if not content:
        console.print("no task wants more attempts; the list is written at the end of a night: `nightshift night`")
        return
    drawn = content if every else content[:SHOWN_TASKS]
    console.print(
        f"{len(content)} tasks want more attempts (night {content[0]['night']}).\n"
        "Order: what is uncertain, recent and often asked, near-copies behind the first of them (score).\n"
    )
    lines = [
        (
            row["rank"],
            row["task_id"] or row["task_key"],
            row["harness"],
            row["num_attempts"],
            row["num_own"],
            row["score"],
            row["reason"],
        )
        for row in drawn
    ]
    table(
        "",
        ["rank", "task", "harness", "attempts", "own", "score", "reason"],
        lines,
        numbers=["rank", "attempts", "own", "score"],
        whole=["rank", "task", "attempts", "reason"],
    )
    console.print()
    for reason in dict.fromkeys(row["reason"] for row in drawn):
        console.print(words.said(words.WANTED, reason))
    if len(content) > len(drawn):
        console.print(f"{len(content) - len(drawn)} more: --all")


SHOWN_TASKS = 20
"""Wanted tasks that are shown without --all."""


def night(content: dict[str, Any]) -> None:
    """One night, stage by stage, and its decision."""
    lines = []
    for asset, report in content["reports"].items():
        kept = {key: value for key, value in report.items() if key in _TOLD.get(asset, ()) and value not in (None, {}, [])}
        if "stopped_by" in kept:
            kept["stopped_by"] = words.said(words.TOP_UP_STOP, kept["stopped_by"])
        shown = text(kept) if report.get("why_nothing") is None else report["why_nothing"]
        lines.append((asset, f"{content['seconds'].get(asset, 0):.1f}", shown))
    table(f"Night {content['night']}", ["stage", "seconds", "what it did"], lines, numbers=["seconds"])
    decision = content["reports"].get("promotion/decision")
    if decision:
        console.print(f"\n{decision['decision']}: {decision['reason']}. Champion: {decision['policy_version']}")


_TOLD: dict[str, tuple[str, ...]] = {
    "landing/top_up": ("rollouts", "found", "tasks", "tokens", "stopped_by", "faults", "skipped", "problem"),
    "landing/records": ("records", "seen", "quarantined", "skipped"),
    "trajectories/trajectories": ("trajectories", "duplicates", "faults"),
    "groups/groups": ("groups", "members", "waiting"),
    "rewards/rewards": ("groups", "groups_mixed", "mean_reward", "pass_rate", "judged", "agreement"),
    "batches/batches": ("batch_ids", "groups", "trajectories", "lanes"),
    "training/run": ("run_id", "reused", "metrics"),
    "checkpoints/checkpoint": ("policy_version", "reused"),
    "evaluation/results": ("num_tasks", "challenger_pass_rate", "champion_pass_rate", "reused"),
    "monitors/signals": ("alarms",),
    "promotion/decision": ("decision", "reason", "difference", "lower_bound"),
    "groups/wanted": ("tasks", "reasons"),
}


def lineage(content: dict[str, Any]) -> None:
    """A checkpoint's lineage as a tree down to source files and lines; or what learned from a line."""
    from rich.tree import Tree

    title = content.get("policy_version") or content["reference"]
    tree = Tree(f"[bold]{title}[/bold]  {content.get('checkpoint') or ''}")
    for name in ("parents", "checkpoints"):
        if content.get(name):
            branch = tree.add(name)
            for entry in content[name]:
                through = f" ({entry['through']})" if entry.get("through") else ""
                branch.add(f"{entry['policy_version']}  {entry['checkpoint']}  night {text(entry['night'])}{through}")
    for name in ("batches", "groups", "trajectories"):
        entries = content.get(name) or []
        branch = tree.add(f"{len(entries)} {name}")
        for entry in entries[:SHOWN_IDS]:
            branch.add(text(entry))
        if len(entries) > SHOWN_IDS:
            branch.add(f"… {len(entries) - SHOWN_IDS} more (--json lists all)")
    files: dict[str, list[int]] = {}
    for source in content.get("sources", ()):
        files.setdefault(source["file"], []).append(source["line"])
    if files:
        branch = tree.add(f"{sum(len(set(lines)) for lines in files.values())} source lines")
        for file, lines in sorted(files.items()):
            branch.add(f"{file}: {ranges(lines)}")
    console.print(tree)


SHOWN_IDS = 3
"""Ids of one kind that a lineage tree names."""


def ranges(lines: list[int]) -> str:
    """Line numbers in short: 1-64, 70."""
    ordered, parts, start = sorted(set(lines)), [], 0
    for index, line in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != line + 1:
            parts.append(str(line) if ordered[start] == line else f"{ordered[start]}-{line}")
            start = index + 1
    return ", ".join(parts)


def checkpoints(content: list[dict[str, Any]]) -> None:
    """All checkpoints, newest last; ids are cut short (`--json` has them whole)."""
    if not content:
        console.print("no checkpoint yet: `nightshift night` trains one where a night has something to teach")
        return
    lines = [
        (
            row["policy_version"],
            "champion" if row["champion"] else "",
            row["night"],
            row["parent"],
            ", ".join(short(batch) for batch in row["batches"]),
            row["held_out_pass_rate"],
            row["difference"],
            row["decision"],
            row["reason"],
            row["marks"],
            short(row["checkpoint_id"]),
        )
        for row in content
    ]
    columns = ["version", "", "night", "parent", "batches", "held-out", "difference", "decision", "reason", "marks", "checkpoint"]
    table("", columns, lines, numbers=["held-out", "difference"])


def findings(content: list[dict[str, Any]]) -> None:
    """What `doctor` found."""
    table("", ["check", "ok", "detail"], [(row["check"], row["ok"], row["detail"]) for row in content])


def demo(content: dict[str, Any]) -> None:
    """The table of nights, seconds per stage, the audit, and where the curve lies."""
    nights = content["nights"]
    columns = [
        "night",
        "rollouts",
        "groups",
        "mixed",
        "lanes",
        "reward",
        "clipped",
        "held-out before",
        "after",
        "decision",
        "seconds",
    ]
    lines = [
        (
            entry["night"],
            entry["rollouts"],
            entry["groups"],
            entry["groups_mixed"],
            entry["lanes"],
            entry["mean_reward"],
            entry["clip_fraction"],
            rate(entry["held_out_before"], entry["held_out_before_interval"]),
            rate(entry["held_out_after"], entry["held_out_after_interval"]),
            f"{entry['decision']} ({entry['reason']})",
            entry["seconds"],
        )
        for entry in nights
    ]
    table(
        f"\nNights, seed {content['seed']}",
        columns,
        lines,
        numbers=["rollouts", "groups", "mixed", "reward", "clipped", "seconds"],
    )
    days = [entry["night"] for entry in nights]
    stages = list(dict.fromkeys(stage for entry in nights for stage in entry["seconds_by_stage"]))
    spent = [(stage, *(entry["seconds_by_stage"].get(stage) for entry in nights)) for stage in stages]
    table("\nSeconds per stage", ["stage", *days], spent, numbers=days)
    console.print()
    fields(
        {
            "audit, base model": rate(content["audit_before"], content["audit_before_interval"]),
            "audit, champion": rate(content["audit_after"], content["audit_after_interval"]),
            "champion": content["champion"],
            "its lineage": content["lineage"],
            "judge": content["judge"],
            "curve": content["curve"],
            "took": f"{content['seconds']:.0f} s",
        }
    )
    console.print(f"\nAsk it: nightshift -w {content['workspace']} lineage {content['champion']}    See it: make dev")


def rate(measured: float | None, interval: Sequence[float] | None) -> str:
    """A pass rate with its 95% interval."""
    if measured is None:
        return NOTHING
    return f"{measured:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")
