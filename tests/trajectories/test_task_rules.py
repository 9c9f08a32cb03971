"""What names a task and a run: the log, a rule of the workspace, the first request without what is volatile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import doctor, groups
from pipelines.errors import ConfigError
from pipelines.ingest import ingest
from pipelines.landing.land import land
from pipelines.lineage import why
from pipelines.schemas import DUPLICATES, GROUPS, RECORDS, TRAJECTORIES
from pipelines.tasks import rules_of
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.lines import write_lines

MAIL = "anna@example.org"


def unnamed(attempt: str, request: str = "help me", *, system: str = "Add.", **changes: Any) -> dict[str, Any]:
    """A call whose log has no task id."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": request}]
    return call(attempt, request={"messages": messages, "tools": None}, **{"task_id": None, **changes})


def take_in(workspace: Workspace, lines: list[dict[str, Any]], name: str = "log") -> None:
    land(workspace, [write_lines(workspace.folder / "logs" / f"{name}.jsonl", lines)])
    build(workspace)


def by_attempt(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Rows of trajectories by the attempt_id of their first record."""
    records = {row["record_id"]: json.loads(row["raw"])["attempt_id"] for row in workspace.lake.read(RECORDS.name).to_pylist()}
    return {records[row["record_ids"][0]]: row for row in rows_of(workspace, TRAJECTORIES.name)}


def test_log_then_rule_then_request(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", '[groups]\ntask = "$.metadata.ticket"\n')
    ticket = {"metadata": {"ticket": "ticket-7"}}
    take_in(
        workspace,
        [
            unnamed("a", **ticket),
            unnamed("b", "other words", **ticket),
            call("c", task="ticket-7", metadata={"ticket": "x"}),
            unnamed("d"),
            unnamed("e", metadata={"ticket": 7}),
        ],
    )
    rows = by_attempt(workspace)
    sources = {name: (row["task_source"], row["task_id"]) for name, row in rows.items()}
    assert sources == {
        "a": ("rule", "ticket-7"),
        "b": ("rule", "ticket-7"),
        "c": ("log", "ticket-7"),
        "d": ("request", None),
        "e": ("rule", "7"),
    }
    # what a rule names is the task that a log of the same harness names so
    assert {rows[name]["task_key"] for name in "abc"} == {workspace.identity.task_key("sums", "ticket-7")}
    assert len({row["task_key"] for row in rows.values()}) == 3
    told = why(workspace, rows["a"]["trajectory_id"])
    assert told["trajectory"]["task_source"] == "rule"


def test_without_rules_nothing_moves(tmp_path: Path) -> None:
    lines = [unnamed("a", "at 12:30"), call("b"), unnamed("c", "plain")]
    plain, masked = make_workspace(tmp_path / "plain"), make_workspace(tmp_path / "masked", '[groups]\nvolatile = ["times"]\n')
    for workspace in (plain, masked):
        take_in(workspace, lines)
    before, after = by_attempt(plain), by_attempt(masked)
    assert {row["task_rules"] for row in before.values()} == {None} and {row["run_key"] for row in before.values()} == {None}
    assert [name for name in before if before[name]["task_key"] != after[name]["task_key"]] == ["a"]
    assert all(before[name]["context_key"] == after[name]["context_key"] for name in before)


def test_a_source_has_its_own_rule_before_the_workspaces(tmp_path: Path) -> None:
    config = '[groups]\ntask = "$.metadata.ticket"\n[[sources]]\npath = "logs/shop"\ntask = "$.metadata.order"\n'
    workspace = make_workspace(tmp_path / "w", config)
    both = {"metadata": {"ticket": "t", "order": "o"}}
    take_in(workspace, [unnamed("a", **both), unnamed("b", metadata={"ticket": "t"})], "shop/1")
    take_in(workspace, [unnamed("c", **both)], "desk")
    assert {name: row["task_id"] for name, row in by_attempt(workspace).items()} == {"a": "o", "b": "t", "c": "t"}


def test_volatile_parts_of_request_and_system_prompt_make_no_other_task_or_context(tmp_path: Path) -> None:
    config = '[groups]\nvolatile = ["times", "uuids", "paths", "/Case #[0-9]+/"]\n[evaluation]\nheld_out_share = 0.0\n'
    workspace = make_workspace(tmp_path / "w", config)
    uuids = ("123e4567-e89b-12d3-a456-426614174000", "00000000-e89b-12d3-a456-426614174000")
    lines = [
        unnamed(
            f"a{number}",
            f"Case #{number}: fix /tmp/run{number}/x.py at 12:0{number}",
            system=f"Today is 2026-11-2{number}. {uuids[number]}",
        )
        for number in range(2)
    ]
    tools = [{"type": "function", "function": {"name": "at 12:30", "parameters": {}}}]
    with_tools = unnamed("b", "Case #3: fix /tmp/x/x.py at 12:03", system=f"Today is 2026-11-23. {uuids[0]}")
    with_tools["request"]["tools"] = tools
    take_in(
        workspace,
        [*lines, with_tools, unnamed("c", "Case #1: break /tmp/run1/x.py at 12:01", system=f"Today is 2026-11-20. {uuids[0]}")],
    )
    rows = by_attempt(workspace)
    assert rows["a0"]["task_key"] == rows["a1"]["task_key"] == rows["b"]["task_key"] != rows["c"]["task_key"]
    assert rows["a0"]["context_key"] == rows["a1"]["context_key"] == rows["c"]["context_key"] != rows["b"]["context_key"]
    assert rows["a0"]["content_id"] != rows["a1"]["content_id"]
    assert json.loads(rows["a0"]["turns"])[1]["content"] == "Case #0: fix /tmp/run0/x.py at 12:00"
    assert set(json.loads(rows["a0"]["turns"])[1]) == {"role", "content", "sampled", "call"}
    sealed = groups.seal(workspace, "2026-11-30", judged=True)
    assert (sealed.groups, sealed.members) == (1, 2)


CODE = """
def name(turns, values):
    turns[0]["content"] = "changed"
    values[0]["metadata"].clear() if "metadata" in values[0] else None
    request = [turn["content"] for turn in turns if turn["role"] == "user"][0]
    if request == "boom":
        raise RuntimeError("no ticket here")
    if request == "number":
        return 7
    return request.split(":")[0] if ":" in request else None

def run(turns, values):
    return values[0].get("run")
"""


def test_a_python_rule_names_tasks_and_one_that_breaks_stops_nobody_else(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", '[groups]\ntask = "rules.py:name"\nrun = "rules.py:run"\n')
    (workspace.folder / "rules.py").write_text(CODE)
    lines = [
        unnamed("a", "T1: add"),
        unnamed("b", "T1: subtract", metadata={"x": 1}),
        unnamed("c", "boom"),
        unnamed("d", "number"),
        unnamed("e", "plain"),
        call("f", run="r"),
    ]
    take_in(workspace, lines)
    rows = by_attempt(workspace)
    assert {name: row["task_id"] for name, row in rows.items()} == {"a": "T1", "b": "T1", "e": None, "f": "1"}
    assert rows["f"]["run_key"] is not None and rows["a"]["run_key"] is None
    assert "Add." in rows["a"]["turns"]  # what the rule did to its copies changed nothing
    left = sorted(row["detail"] for row in rows_of(workspace, DUPLICATES.name) if row["kind"] == "unreadable")
    assert left == [
        "NamingError: [groups] task = 'rules.py:name' answered 7, which is no text; answer with a text, or None",
        "NamingError: [groups] task = 'rules.py:name' broke: RuntimeError: no ticket here",
    ]
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('task = "$.a["', r"groups\.task: .*no JSONPath \(RFC 9535\): unexpected end"),
        ('task = "metadata.ticket"', r"groups\.task: .*neither a JSONPath, which begins with \$, nor"),
        ('run = "rules.py"', r"groups\.run: .*neither"),
        ('volatile = ["times", "clock"]', r"groups\.volatile: 'clock' is no mask; the masks are uuids"),
    ],
)
def test_a_rule_that_is_none_is_said_when_the_workspace_is_opened(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_workspace(tmp_path / "w", f"[groups]\n{setting}\n")
    with pytest.raises(ConfigError, match=r"sources\.0\.task: "):
        make_workspace(tmp_path / "other", '[[sources]]\npath = "logs"\ntask = "nothing"\n')


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "cannot be read"),
        ("def (", "cannot be loaded"),
        ("raise ValueError('x')", "cannot be loaded"),
        ("a = 1", "has no function name"),
    ],
)
def test_a_file_that_cannot_be_used_stops_ingest_before_anything_is_written(tmp_path: Path, code: str | None, said: str) -> None:
    workspace = make_workspace(tmp_path / "w", '[groups]\ntask = "rules.py:name"\n')
    if code is not None:
        (workspace.folder / "rules.py").write_text(code)
    log = write_lines(workspace.folder / "log.jsonl", [unnamed("a")])
    with pytest.raises(ConfigError, match=rf"\[groups\] task = 'rules.py:name': .*{said}"):
        ingest(workspace, [log])
    assert workspace.lake.version(RECORDS.name) is None
    assert "tasks" in [finding.check for finding in doctor.check(workspace) if not finding.ok]


def test_draws_of_separate_runs_stay_apart(tmp_path: Path) -> None:
    config = '[groups]\nrun = "$.metadata.run"\n[evaluation]\nheld_out_share = 0.0\n'
    workspace = make_workspace(tmp_path / "w", config)
    runs = {"a": "1", "b": "1", "c": "2", "d": "2", "e": None, "f": None, "g": "3"}
    lines = [call(name, **({} if run is None else {"metadata": {"run": run}})) for name, run in runs.items()]
    take_in(workspace, lines)
    names = {row["trajectory_id"]: name for name, row in by_attempt(workspace).items()}
    groups.seal(workspace, "2026-11-30", judged=True)
    found: dict[str, set[str]] = {}
    for row in rows_of(workspace, GROUPS.name):
        found.setdefault(row["group_id"], set()).add(names[row["trajectory_id"]])
        assert (row["run_key"] is None) == (runs[names[row["trajectory_id"]]] is None)
    assert sorted(map(sorted, found.values())) == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert groups.violations(workspace).num_rows == 0
    # a run's name is no text in the lake
    assert {row["run_key"][:4] for row in rows_of(workspace, TRAJECTORIES.name) if row["run_key"]} == {"nam_"}
    # what has no run is in the group that it would be in anyway
    plain = make_workspace(tmp_path / "plain", "[evaluation]\nheld_out_share = 0.0\n")
    take_in(plain, [call("e"), call("f")])
    groups.seal(plain, "2026-11-30", judged=True)
    assert {row["group_id"] for row in rows_of(plain, GROUPS.name)} <= set(found)


def test_redaction_moves_no_name_and_no_masked_request(tmp_path: Path) -> None:
    """Names and masked requests that hold a secret are what they are where nothing is redacted."""
    rules = '[groups]\ntask = "$.metadata.owner"\nrun = "$.metadata.by"\nvolatile = ["times"]\n'
    lines = [
        unnamed("a", metadata={"owner": MAIL, "by": MAIL}),
        unnamed("b", f"mail {MAIL} at 12:30", system=f"You are {MAIL}. It is 12:30."),
        unnamed("c", f"mail {MAIL} at 9:15", system=f"You are {MAIL}. It is 9:15."),
        unnamed("d", "mail bob@example.org at 9:15", system=f"You are {MAIL}. It is 9:15."),
    ]
    kept, taken = (
        make_workspace(tmp_path / "kept", rules + '[redaction]\noff = ["email"]\n'),
        make_workspace(tmp_path / "taken", rules),
    )
    for workspace in (kept, taken):
        take_in(workspace, lines)
    before, after = by_attempt(kept), by_attempt(taken)
    assert MAIL not in json.dumps(rows_of(taken, TRAJECTORIES.name), default=str)
    keys = ("task_key", "context_key", "run_key", "task_source", "content_id", "trajectory_id")
    assert [[row[key] for key in keys] for row in after.values()] == [[row[key] for key in keys] for row in before.values()]
    assert after["b"]["task_key"] == after["c"]["task_key"] != after["d"]["task_key"]
    assert after["a"]["task_key"] == taken.identity.task_key("sums", MAIL)


def test_a_rule_that_comes_after_the_redaction_names_nothing_by_a_token(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    lines = [unnamed(name, f"mail {MAIL} at {time}", metadata={"owner": MAIL}) for name, time in (("a", "12:30"), ("b", "9:15"))]
    land(workspace, [write_lines(workspace.folder / "log.jsonl", lines)])
    config = '[groups]\ntask = "$.metadata.owner"\nrun = "$.metadata.owner"\nvolatile = ["times"]\n'
    workspace = make_workspace(workspace.folder, config)
    built = build(workspace)
    assert built.named_by == {"redacted": 2}
    rows = list(by_attempt(workspace).values())
    # nobody knows whether they are the same task or run, so they are not
    assert len({row["task_key"] for row in rows}) == 2 and len({row["run_key"] for row in rows}) == 2
    # another redaction key moves none of it
    moved = make_workspace(workspace.folder, config)
    (moved.folder / ".keys" / "redaction").write_text("33" * 32 + "\n")
    moved = Workspace.open(moved.folder)
    from pipelines.replay import replay

    assert replay(moved, apply=True).redacted
    keys = ("task_key", "context_key", "run_key")
    assert [[row[key] for key in keys] for row in by_attempt(moved).values()] == [[row[key] for key in keys] for row in rows]


def test_rules_configured_before_a_later_redaction_keep_their_names(tmp_path: Path) -> None:
    from pipelines.replay import replay

    config = '[groups]\ntask = "$.metadata.owner"\nvolatile = ["times"]\n'
    workspace = make_workspace(tmp_path / "w", config + '[redaction]\noff = ["email"]\n')
    take_in(
        workspace,
        [unnamed("a", metadata={"owner": MAIL}), unnamed("b", f"mail {MAIL} at 12:30"), unnamed("c", f"mail {MAIL} at 9:15")],
    )
    before = {name: (row["task_key"], row["context_key"]) for name, row in by_attempt(workspace).items()}
    workspace = make_workspace(workspace.folder, config)
    replay(workspace, apply=True)
    assert MAIL not in json.dumps(rows_of(workspace, TRAJECTORIES.name), default=str)
    assert {name: (row["task_key"], row["context_key"]) for name, row in by_attempt(workspace).items()} == before


RULED = '[groups]\ntask = "$.metadata.ticket"\nrun = "$.metadata.run"\nvolatile = ["times", "numbers"]\n'
LINES = [
    unnamed(
        f"{task}{number}",
        f"{task} at 12:0{number}",
        day=number % 3,
        metadata={"run": number % 2, **({"ticket": MAIL} if task == "x" else {})},
    )
    for task in "xyz"
    for number in range(4)
]


@pytest.fixture(scope="module")
def in_order(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    workspace = make_workspace(tmp_path_factory.mktemp("in-order") / "w", RULED)
    take_in(workspace, LINES)
    groups.seal(workspace, "2026-11-30", judged=True)
    assert workspace.lake.num_rows(GROUPS.name) == 12
    return doctor.digest(workspace)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), num_files=st.integers(1, 3))
def test_names_depend_on_neither_order_nor_files(
    seed: int, num_files: int, in_order: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw, lines = random.Random(seed), list(LINES)
    workspace = make_workspace(tmp_path_factory.mktemp("shuffled") / "w", RULED)
    draw.shuffle(lines)
    for number in range(num_files):
        take_in(workspace, lines[number::num_files], str(number))
    groups.seal(workspace, "2026-11-30", judged=True)
    assert doctor.digest(workspace) == in_order


def test_another_rule_or_other_code_is_another_fingerprint(tmp_path: Path) -> None:
    found: list[str | None] = []
    configs = [
        "",
        RULED,
        RULED.replace("ticket", "order"),
        '[groups]\nvolatile = ["times"]\n',
        '[groups]\nrun = "$.a"\n',
        '[groups]\ntask = "$.a"\n',
    ]
    configs += ['[[sources]]\npath = "logs"\ntask = "$.a"\n', '[groups]\ntask = "rules.py:name"\n']
    for config in configs:
        workspace = make_workspace(tmp_path / "w", config)
        (workspace.folder / "rules.py").write_text(CODE)
        found.append(rules_of(workspace).fingerprint)
    (workspace.folder / "rules.py").write_text(CODE + "\n# mended\n")
    found.append(rules_of(workspace).fingerprint)
    assert found[0] is None and len(set(found)) == len(found)
