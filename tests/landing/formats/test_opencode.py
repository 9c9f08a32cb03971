"""OpenCode's storage tree and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.opencode import OpenCode
from tests.landing.bundles import attempts_of, bad_of, one, told

FORMAT = OpenCode()
FOLDERS = {"opencode"}
T = 1_790_000_000_000

SESSION = {
    "id": "ses_1",
    "version": "1.3",
    "projectID": "p",
    "directory": "/w",
    "title": "T",
    "time": {"created": T, "updated": T + 99},
}


def message(name: str, role: str, time: int, **fields: Any) -> dict[str, Any]:
    fields = {"modelID": "m-1", "providerID": "p", **fields} if role == "assistant" else fields
    return {"id": name, "sessionID": "ses_1", "role": role, "time": {"created": T + time}, **fields}


def part(number: int, of: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"prt_{number:012x}x", "sessionID": "ses_1", "messageID": of, "type": kind, **fields}


def tool(number: int, of: str, status: str = "completed", **state: Any) -> dict[str, Any]:
    done = {"output": "a.txt"} if status == "completed" else {}
    state = {"status": status, "input": {"command": "ls"}, **done, **state}
    return part(number, of, "tool", callID="c1", tool="bash", state=state)


def finish(number: int, of: str, reason: str) -> dict[str, Any]:
    tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 1}}
    return part(number, of, "step-finish", reason=reason, tokens=tokens, cost=0.5)


MESSAGES = [
    message("msg_1", "user", 1, summary={"title": "Look"}),
    message("msg_2", "assistant", 2, parentID="msg_1", finish="stop"),
]
PARTS = [
    part(1, "msg_1", "text", text="Look."),
    part(2, "msg_2", "step-start"),
    part(3, "msg_2", "reasoning", text="hm"),
    part(4, "msg_2", "text", text="I look."),
    tool(5, "msg_2"),
    finish(6, "msg_2", "tool-calls"),
    part(7, "msg_2", "step-start"),
    part(8, "msg_2", "text", text="One file."),
    finish(9, "msg_2", "stop"),
]
EXPORT = {
    "info": SESSION,
    "messages": [{"info": row, "parts": [held for held in PARTS if held["messageID"] == row["id"]]} for row in MESSAGES],
}
FILES = [json.dumps(row, indent=2).encode() for row in (SESSION, *MESSAGES, PARTS[0], PARTS[4], EXPORT)]


def tree(root: Path, *rows: dict[str, Any]) -> list[Path]:
    """The storage tree of these rows."""
    paths = []
    for number, row in enumerate(rows):
        if "role" in row:
            path = root / "message" / row["sessionID"] / f"{row['id']}-{number}.json"
        elif "type" in row:
            path = root / "part" / (row.get("messageID") or "msg_2") / f"{row['id']}-{number}.json"
        else:
            path = root / "session" / "p" / f"{row['id']}-{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row, indent=2), encoding="utf-8")
        paths.append(path)
    return paths


EXPECTED = [("user", False, "Look."), ("assistant", True, "I look."), ("tool", False, "a.txt"), ("assistant", True, "One file.")]


def test_the_files_of_a_session_are_an_attempt(tmp_path: Path) -> None:
    attempt = one(FORMAT, *tree(tmp_path, SESSION, *MESSAGES, *PARTS))
    assert told(attempt) == EXPECTED
    assert (attempt.turns[1]["reasoning"], attempt.turns[1]["finish_reason"]) == ("hm", "tool-calls")
    assert attempt.turns[1]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command":"ls"}'}
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == ("m-1", 28, 4, 1.0)
    assert (attempt.link, attempt.fault, len(attempt.record_ids)) == (None, None, 12)


def test_an_export_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(EXPORT), encoding="utf-8")
    attempt = one(FORMAT, path)
    assert told(attempt) == EXPECTED
    files = one(FORMAT, *tree(tmp_path, SESSION, *MESSAGES, *PARTS))
    assert [turn["id"] for turn in attempt.turns] == [turn["id"] for turn in files.turns]


def test_a_part_that_grew_counts_once(tmp_path: Path) -> None:
    rows = [SESSION, *MESSAGES, *PARTS, tool(5, "msg_2", "running"), tool(5, "msg_2", "pending")]
    assert told(one(FORMAT, *tree(tmp_path, *rows))) == EXPECTED


def test_old_parts_name_their_session_by_where_they_stand(tmp_path: Path) -> None:
    bare = [{key: value for key, value in row.items() if key != "sessionID"} for row in PARTS]
    bare[7].pop("messageID")
    assert told(one(FORMAT, *tree(tmp_path, SESSION, *MESSAGES, *bare))) == EXPECTED
    (lost,) = tree(tmp_path / "elsewhere", bare[0])
    (bad,) = bad_of(FORMAT, lost)
    assert bad.reason == "wrong_shape" and "names no session" in bad.detail


def test_a_compaction_a_subagent_and_what_was_copied(tmp_path: Path) -> None:
    rows = [
        {**SESSION, "parentID": "ses_0"},
        *MESSAGES,
        *PARTS,
        message("msg_3", "user", 3),
        part(10, "msg_3", "compaction", auto=True),
        message("msg_4", "assistant", 4, summary=True),
        part(11, "msg_4", "text", text="So far: one file."),
        message("msg_5", "user", 5),
        part(12, "msg_5", "text", text="Go on.", synthetic=True),
        message("msg_6", "assistant", 6, error={"name": "MessageAbortedError"}),
        part(13, "msg_6", "text", text="Going"),
    ]
    (attempts,) = attempts_of(FORMAT, *tree(tmp_path, *rows)).values()
    assert [(attempt.link, attempt.parent_ref, attempt.fault) for attempt in attempts] == [
        ("subagent", None, None),
        ("compaction", "", "aborted"),
    ]
    assert told(attempts[1]) == [
        ("assistant", False, "So far: one file."),
        ("user", False, "Go on."),
        ("assistant", True, "Going"),
    ]
    forked = {**SESSION, "time": {"created": T + 5, "updated": T + 9}}
    copied = one(FORMAT, *tree(tmp_path / "fork", forked, *MESSAGES, *PARTS))
    assert (copied.num_sampled_turns, copied.link, copied.num_shared_turns) == (0, "branch", 4)


@pytest.mark.parametrize(
    ("name", "fault"), [("ProviderAuthError", "model_error"), ("MessageOutputLengthError", None), ("X", "harness_error")]
)
def test_errors(tmp_path: Path, name: str, fault: str | None) -> None:
    rows = [SESSION, MESSAGES[0], {**MESSAGES[1], "error": {"name": name}}, PARTS[0]]
    assert one(FORMAT, *tree(tmp_path, *rows)).fault == fault


def test_parts_without_their_message_are_left(tmp_path: Path) -> None:
    assert attempts_of(FORMAT, *tree(tmp_path, SESSION, *PARTS)) == {"ses_1": []}
    orphaned = one(FORMAT, *tree(tmp_path / "other", SESSION, *MESSAGES[:1], *PARTS))
    assert told(orphaned) == EXPECTED[:1]


@pytest.mark.parametrize(
    "row", [message("msg_1", "user", 1, tokens=5), part(1, "msg_1", "text", text=5), tool(1, "msg_1", time={"start": "x"})]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    (bad,) = bad_of(FORMAT, *tree(tmp_path, row))
    assert bad.reason == "wrong_shape"


def test_real_trees(shared_logs: Path) -> None:
    found = attempts_of(FORMAT, *sorted((shared_logs / "opencode").rglob("*.json")))
    assert {
        ref: [(len(a.turns), a.num_sampled_turns, len(a.record_ids)) for a in attempts] for ref, attempts in found.items()
    } == {
        "s_stage0_drift": [(3, 2, 5)],
        "s_stage0_large": [(5, 2, 16)],
        "s_stage0_small": [(4, 2, 6)],
    }
