"""One trajectory's story, and the fate of one line of a log, told in words: each stage a paragraph, its tables behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from pipelines import words
from pipelines.show import ranges
from pipelines.terminal import console, text
from trainer.contract import REWARD_UNIT

SHOWN_FILES = 5
"""Files that a story names."""
Stage = tuple[str, str, Sequence[str]]
"""Title, tables, sentences."""


def story(content: dict[str, Any]) -> None:
    """Draw the answer of `nightshift why`."""
    console.print(f"[bold]{content['trajectory']['trajectory_id']}[/bold]")
    stages = (_landed, _trajectory, _task, _group, _rewards, _lanes, _batches, _checkpoints)
    _draw(stage(content) for stage in stages)
    console.print('\nMore: nightshift sql "SELECT … FROM <table>" with a table named above; the same as rows: --json')


def line(content: dict[str, Any]) -> None:
    """Draw what became of one line of a log."""
    place = f"{content['file']}:{content['line']}"
    for piece in content["became"]:
        where = "begins there" if piece["line"] == content["line"] else f"begins at line {piece['line']} and holds it"
        console.print(f"[bold]{escape(place)}[/bold]: {piece['record_id']} {where}.", soft_wrap=True)
        console.print(Padding(escape(f"{_FATE[piece['became']](piece)}"), (0, 0, 0, 2)))


def _in_trajectory(piece: dict[str, Any]) -> str:
    return f"It is part of {piece['trajectory_id']}. Its story: nightshift why {piece['trajectory_id']}"


def _duplicate(piece: dict[str, Any]) -> str:
    stands = f"; {piece['trajectory_id']} stands for it" if piece["trajectory_id"] else ""
    return f"It is part of no trajectory ({words.said(words.LEFT_OUT, piece['reason'])}){stands}."


def _skipped(piece: dict[str, Any]) -> str:
    return f"It was skipped ({words.said(words.SKIPPED, piece['reason'])}). It is kept in landing.records."


def _quarantined(piece: dict[str, Any]) -> str:
    detail = f" The parser said: {piece['detail']}." if piece["detail"] else ""
    return (
        f"It is in quarantine ({words.said(words.QUARANTINED, piece['reason'])}).{detail} Its text: nightshift quarantine show "
        f"{piece['record_id']}"
    )


def _waiting(piece: dict[str, Any]) -> str:
    del piece
    return "It landed and no trajectory is made of it yet; the next ingest or night does."


_FATE = {
    "trajectory": _in_trajectory,
    "duplicate": _duplicate,
    "skipped": _skipped,
    "quarantined": _quarantined,
    "waiting": _waiting,
}


def _draw(stages: Iterable[Stage]) -> None:
    drawn = Table(show_header=False, box=None, pad_edge=False, padding=(1, 2, 0, 0))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for title, tables, sentences in stages:
        drawn.add_row(title, escape("\n".join(sentences)) + f"\n[dim]{tables}[/dim]")
    console.print(drawn)


def _landed(content: dict[str, Any]) -> Stage:
    files: dict[str, list[int]] = {}
    for source in content["sources"]:
        files.setdefault(source["file"], []).append(source["line"])
    places = [f"{file}:{ranges(lines)}" for file, lines in sorted(files.items())]
    more = f" and {len(places) - SHOWN_FILES} more files" if len(places) > SHOWN_FILES else ""
    told = [f"From {', '.join(places[:SHOWN_FILES])}{more}, read as format {content['trajectory']['format']}."]
    for kind, said in (("other_log", "The same attempt is told by"), ("unfinished", "Its beginning is told by")):
        logs: dict[tuple[str, str], list[int]] = {}
        for line in content["other_logs"]:
            if line["kind"] == kind:
                logs.setdefault((line["file"], line["format"]), []).append(line["line"])
        named = [f"{file}:{ranges(lines)} (format {format})" for (file, format), lines in sorted(logs.items())]
        if named:
            more = f" and {len(named) - SHOWN_FILES} more files" if len(named) > SHOWN_FILES else ""
            told.append(f"{said} {', '.join(named[:SHOWN_FILES])}{more} too, which count once with it.")
    behind = len(content["duplicates"]) - len(content["other_logs"])
    if behind:
        told.append(f"{_count(behind, 'other record')} of the log stand behind it and make no part of it.")
    return "landed", "landing.records, trajectories.duplicates", told


def _trajectory(content: dict[str, Any]) -> Stage:
    row = content["trajectory"]
    policy = row["policy_version"] or row["model"]
    by = f"by {policy}" if policy else "by a model that the log does not name"
    tokens = "with the sampler's token ids and logprobs" if row["exact_tokens"] else "without the sampler's token ids"
    sampled = f"{row['num_sampled_turns']} of them sampled {by}, {tokens}" if row["num_sampled_turns"] else "none of them sampled"
    told = [f"It became a trajectory of {_count(row['num_turns'], 'turn')}, {sampled}; day {row['day']}."]
    if row["purpose"] != "production":
        told.append(f"It was run as {row['purpose']}.")
    if row["parent_trajectory_id"] or row["link"]:
        parent = row["parent_trajectory_id"] or "an attempt that was not logged"
        shared = f" and shares its first {_count(row['num_shared_turns'], 'turn')}" if row["num_shared_turns"] else ""
        told.append(f"It comes from {parent}{shared} ({words.said(words.LINK, row['link'])}).")
    if row["num_gaps"]:
        told.append(f"{_count(row['num_gaps'], 'assistant turn')} in its prompts that no record answers cannot be trained on.")
    if row["fault"]:
        told.append(f"It ended in a fault of the harness ({words.said(words.FAULT, row['fault'])}), so it is no failed attempt.")
    if row["outcome"] is not None:
        told.append(f"The log gives it {_score(row['outcome'])} ({row['outcome_source']}: {text(row['outcome_logged'])}).")
    elif row["outcome_logged"] is not None:
        told.append(f"Its logged outcome, {text(row['outcome_logged'])}, lies outside the range that its source declares.")
    else:
        told.append("The log gives it no outcome.")
    return "trajectory", "trajectories.trajectories", told


def _task(content: dict[str, Any]) -> Stage:
    row = content["trajectory"]
    name = (
        f"{row['task_id']} of {row['harness']} ({row['task_key']})"
        if row["task_id"]
        else f"{row['task_key']} of {row['harness']}"
    )
    split = content["split"]
    told = f"in the split {split}" if split else "without a split yet"
    sentences = [f"An attempt at task {name}, {told}."]
    if row["task_source"] is not None:
        sentences.append(f"Named by {row['task_source']} ({words.TASK_SOURCE.get(row['task_source'], row['task_source'])}).")
    if row["run_key"] is not None:
        sentences.append(f"Of run {row['run_key']}: attempts of other runs are no siblings.")
    for near in content["near"]:
        late = ", which was found only after it had trained" if near["trained"] else ""
        sentences.append(
            f"Its request is a near-copy of that of the {near['near_split']} task {near['near_key']} (similarity "
            f"{_score(near['similarity'])}{late})."
        )
    if content["near_copies"]:
        sentences.append(f"{_count(len(content['near_copies']), 'train task')} have requests near its own and do not train.")
    return "task", "groups.splits, groups.near", sentences


def _group(content: dict[str, Any]) -> Stage:
    group = content["group"]
    shown = [f"The anchor of group {group_id}: shown there, counted nowhere." for group_id in content["anchor_of"]]
    if group is None:
        return "group", "groups.groups", [f"In no group: {_why_no_group(content)}.", *shown]
    siblings = group["siblings"]
    told = [
        f"In group {group['group_id']} with {_count(len(siblings), 'sibling')}, because they are attempts at the same task under the "
        f"same context by the same policy family in the window from {group['window']}."
    ]
    told.append(f"Sealed {group['sealed_night']} since {words.SEALED.get(group['seal_reason'], group['seal_reason'])}.")
    if siblings:
        told.append(f"Siblings: {', '.join(siblings)}.")
    if group["anchors"]:
        told.append(f"Beside them as a reference, outside all numbers: {', '.join(group['anchors'])}.")
    return "group", "groups.groups", [*told, *shown]


def _why_no_group(content: dict[str, Any]) -> str:
    reason = content["alone"]
    if reason == "no_siblings":
        return "it waits for siblings, attempts at the same task under the same context; a night seals those that can teach something"
    return words.said(words.LANE, reason)


def _rewards(content: dict[str, Any]) -> Stage:
    told = []
    for verdict in content["verdicts"]:
        score = (
            f"gave {_score(verdict['verifier_score'])}"
            if verdict["verifier_score"] is not None
            else f"failed ({verdict['reason']})"
        )
        told.append(f"Verifier {verdict['verifier']} {score}.")
    for judgement in content["judgements"]:
        if judgement["status"] == "ok":
            told.append(f"The judge {text(judgement['judge'])} gave {_score(judgement['ruler_score'])}.")
        else:
            told.append(f"The judge {text(judgement['judge'])} gave no score ({judgement['status']}).")
    for reward in content["rewards"]:
        under = f"under {reward['rule']}, night {reward['night']}"
        if reward["reward"] is not None:
            told.append(f"Reward {_score(reward['reward'])} {under}.")
        else:
            told.append(f"No reward {under} ({words.said(words.REWARD, reward['reason'])}).")
    if not told:
        told.append(
            "Nothing scored it: only members of a group are." if content["group"] is None else "Its group was not scored yet."
        )
    return "rewards", "rewards.verdicts, rewards.judgements, rewards.rewards", told


def _lanes(content: dict[str, Any]) -> Stage:
    eligible = f"From where it came it may be used for {content['eligible_for']} ({_why_eligible(content)})."
    if content["eligible_for"] == "excluded":
        eligible = f"From where it came it may be used for nothing ({_why_eligible(content)})."
    told = [eligible]
    for row in content["lanes"]:
        lane = "not used" if row["lane"] == "excluded" else f"lane {row['lane']}"
        advantage = "" if row["advantage"] is None else f", advantage {row['advantage']:+.3g}"
        told.append(f"Night {row['night']}: {lane} ({words.said(words.LANE, row['lane_reason'])}){advantage}.")
    for row in content["clusters"]:
        told.append(
            f"Night {row['night']} took {_count(row['num_groups'], 'group')} of {_count(row['num_tasks'], 'task')} that are "
            f"near-copies of each other (cluster {row['cluster']}) and left {row['num_waiting']} for later nights."
        )
    if not content["lanes"]:
        told.append("No night has sorted it yet.")
    return "lane", "batches.lanes, batches.clusters", told


def _why_eligible(content: dict[str, Any]) -> str:
    return words.said(words.ELIGIBLE, content["eligible_reason"])


def _batches(content: dict[str, Any]) -> Stage:
    told = f"Frozen into {', '.join(content['batches'])}." if content["batches"] else "In no batch."
    return "batches", "batches.consumed", [told]


def _checkpoints(content: dict[str, Any]) -> Stage:
    told = []
    for entry in content["checkpoints"]:
        how = "learned from it" if entry["through"] == "direct" else "learned from it through a parent"
        told.append(f"{entry['policy_version']} ({entry['checkpoint']}, night {text(entry['night'])}) {how}.")
    return "checkpoints", "checkpoints.checkpoints", told or ["No checkpoint learned from it."]


def _score(value: int | None) -> str:
    return "no score" if value is None else f"{value / REWARD_UNIT:.3g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
