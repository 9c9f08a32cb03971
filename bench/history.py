"""A lake with a long history of small columns: what many nights leave behind, without their texts.

    python -m bench.history FOLDER [--trajectories 10000000] [--a-night 100000]

Each night logged its attempts at tasks of its own, eight a task, under one context; all were sealed, rewarded and sorted
into lanes, and the groups with spread (half of them) were consumed. Rows are made by the engine from running numbers, so the
same call makes the same lake.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.doors.lake import conform
from pipelines.groups.night_windows import WATCHED, NightWindows, sorted_at
from pipelines.schemas import (
    CHECKPOINTS,
    CONSUMED,
    DUPLICATES,
    GROUPS,
    LANES,
    RECORDS,
    REWARDS,
    ROLLOUTS,
    SPLITS,
    TABLES,
    TRAJECTORIES,
    VERDICTS,
)
from pipelines.workspace import Workspace

FIRST_DAY = datetime.date(2026, 1, 5)
SIZE = 8
"""Attempts a task."""

_ATTEMPTS = """
SELECT
    'trj_' || md5('t' || i) AS trajectory_id,
    'bun_' || md5('b' || i) AS bundle_key,
    '{day}' AS day,
    'recorder' AS format, 3 AS parser_version, 'desk' AS harness,
    'tsk_' || md5('k' || (i // {size})) AS task_key,
    'ctx_' || md5('c') AS context_key,
    'con_' || md5('n' || i) AS content_id,
    'production' AS purpose, 'agent' AS policy_family, 'agent@0' AS policy_version, 'agent' AS model,
    '[]' AS turns, '[]' AS calls,
    2 AS num_turns, 1 AS num_sampled_turns, 2 AS num_sampled_tokens, true AS exact_tokens,
    CASE WHEN (i // {size}) % 2 = 0 THEN (i % 2) * 1000000 ELSE 1000000 END AS outcome,
    0 AS num_shared_turns, 0 AS num_gaps, 1 AS num_identical,
    ['rec_' || md5('r' || i)] AS record_ids,
    ['chatcmpl-' || md5('m' || i) || '+trn_' || md5('n' || i)] AS call_ids,
    CAST([] AS VARCHAR[]) AS copied_call_ids, CAST([] AS VARCHAR[]) AS copied_from,
    CAST('{day} 12:00:00+00' AS TIMESTAMPTZ) AS started_at, CAST('{day} 12:01:00+00' AS TIMESTAMPTZ) AS ended_at,
    strftime(DATE '1970-01-01' + CAST(floor(date_diff('day', DATE '1970-01-01', CAST(day AS DATE)) / 7) * 7 AS INTEGER), '%Y-%m-%d') AS "window",
    i, i // {size} AS task
FROM range({first}, {last}) AS numbers(i)
ORDER BY trajectory_id
"""

_OTHERS = {
    RECORDS.name: """
SELECT record_ids[1] AS record_id, 'con_' || md5('c' || i) AS content_id, bundle_key, day, format, parser_version,
    NULL AS skip_reason, '{}' AS raw, 'log/' || day || '.jsonl' AS source, i AS line, i AS byte_start, i + 1 AS byte_end,
    ended_at AS landed_at
FROM attempts""",
    ROLLOUTS.name: """
SELECT trajectory_id, bundle_key, day, format, started_at, ended_at, exact_tokens, true AS has_outcome, true AS has_model, false AS is_open,
    num_turns, num_sampled_turns, call_ids AS names, 1 AS num_unique, [1] AS name_turns, 1 AS last_turn, [ended_at] AS answer_times,
    CAST([] AS VARCHAR[]) AS prefixes, '{}' AS facts, 'told' AS told_id
FROM attempts""",
    VERDICTS.name: """
SELECT trajectory_id, 'logged_outcome' AS verifier, $verifier AS verifier_hash, 0 AS times, outcome AS verifier_score, "window", day AS night
FROM attempts ORDER BY trajectory_id""",
    GROUPS.name: """
SELECT 'grp_' || md5('g' || task) AS group_id, trajectory_id, task_key, context_key, policy_family, policy_version, content_id, outcome,
    "window", day, 'member' AS "role", 'full' AS seal_reason, day AS sealed_night
FROM attempts ORDER BY group_id, trajectory_id""",
    SPLITS.name: "SELECT DISTINCT task_key, 'train' AS split, 'drawn' AS source, day FROM attempts ORDER BY task_key",
    REWARDS.name: """
SELECT trajectory_id, 'grp_' || md5('g' || task) AS group_id, $rubric AS rubric_hash, $settings || '.' || md5('i' || task) AS reward_key,
    'tests_first' AS rule, outcome AS reward, outcome AS verifier_score, outcome = 1000000 AS passed, NULL AS ruler_score, NULL AS reason,
    1 AS "sequence", "window", day AS night
FROM attempts ORDER BY group_id, trajectory_id""",
    CONSUMED.name: """
SELECT 'grp_' || md5('g' || task) AS group_id, $rubric AS rubric_hash, 'bat_' || md5(day) AS batch_id, 'grpo' AS lane,
    false AS again, "window", day AS night, list_sort(flatten(list([record_ids[1], format || ':' || call_ids[1]]))) AS names
FROM attempts WHERE task % 2 = 0 GROUP BY task, "window", day ORDER BY group_id""",
    CHECKPOINTS.name: """
SELECT DISTINCT 'ckp_' || md5(day) AS checkpoint_id, 'agent' AS policy, CAST(replace(day, '-', '') AS BIGINT) AS version,
    'run_' || md5(day) AS run_id, ['bat_' || md5(day)] AS batches, 'grpo' AS lane, day AS night,
    'runs/run_' || md5(day) || '/checkpoint' AS path, CAST([] AS VARCHAR[]) AS marks
FROM attempts""",
    LANES.name: """
SELECT trajectory_id, day AS night, 'grpo' AS eligible_for, 'exact_tokens' AS eligible_reason,
    CASE WHEN task % 2 = 0 THEN 'grpo' ELSE 'excluded' END AS lane, CASE WHEN task % 2 = 0 THEN 'trained' ELSE 'no_spread' END AS lane_reason,
    'grp_' || md5('g' || task) AS group_id, "window", NULL AS batch_id, NULL AS advantage
FROM attempts""",
}


def attempts_of(day: str, first: int, last: int) -> pa.Table:
    """Attempts number `first` to `last` (exclusive), logged on `day`; with columns i and task besides."""
    with duckdb.connect() as connection:
        return connection.sql(_ATTEMPTS.format(day=day, size=SIZE, first=first, last=last)).to_arrow_table()


def write(workspace: Workspace, num_trajectories: int, a_night: int, *, first_day: datetime.date = FIRST_DAY) -> int:
    """Write the history, a night a day from `first_day` on; returns the number of nights."""
    from pipelines.rewards.score import settings_of
    from pipelines.rewards.verifiers import load

    nights = num_trajectories // a_night
    parameters = {
        "rubric": workspace.rubric()[1],
        "settings": settings_of(workspace).removesuffix("."),
        "verifier": load(workspace)[0].verifier_hash,
    }
    day = ""
    for night in range(nights):
        day = (first_day + datetime.timedelta(days=night)).isoformat()
        attempts = attempts_of(day, night * a_night, (night + 1) * a_night)
        workspace.lake.append(TRAJECTORIES.name, full(TRAJECTORIES.name, attempts))
        for name, sql in _OTHERS.items():
            connection = duckdb.connect()
            connection.register("attempts", attempts)
            used = {key: value for key, value in parameters.items() if f"${key}" in sql}
            workspace.lake.append(name, full(name, connection.sql(sql, params=used).to_arrow_table()))
    workspace.lake.append(DUPLICATES.name, DUPLICATES.schema.empty_table())
    if nights:
        mark_sorted(workspace, day)
    return nights


def mark_sorted(workspace: Workspace, night: str) -> None:
    """What the last night of the history would have committed with its lanes: how far it saw."""
    seen = {name: workspace.lake.version(name) or 0 for name in WATCHED}
    sequences = sorted_at(workspace, night, NightWindows(None, workspace.config.groups.window_days, seen))
    workspace.lake.append_computed(LANES.name, lambda _: (LANES.schema.empty_table(), sequences))


def full(name: str, rows: pa.Table) -> pa.Table:
    """The rows with the columns of the table that they lack, as nulls."""
    spec = TABLES[name]
    for field in spec.schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return conform(rows, spec)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trajectories", type=int, default=10_000_000)
    parser.add_argument("--a-night", type=int, default=100_000)
    chosen = parser.parse_args()
    from pipelines.init import make_workspace

    workspace = make_workspace(chosen.folder) if not chosen.folder.exists() else Workspace.open(chosen.folder)
    print(write(workspace, chosen.trajectories, chosen.a_night), "nights")


if __name__ == "__main__":
    main()
