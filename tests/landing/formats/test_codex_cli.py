"""Codex CLI rollouts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing import registry
from pipelines.landing.codex_cli import CodexCli
from pipelines.landing.format import BadRecord, SourceRecord
from tests.landing.bundles import Read, bundle_of, read, reads_or_refuses, roles
from tests.landing.lines import line, stored, write_lines

FORMAT = CodexCli()
FOLDERS = {"codex_cli"}


def row(second: float, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": f"2026-11-20T10:00:{second:06.3f}Z", "type": kind, "payload": payload}


def item(second: float, kind: str, **payload: Any) -> dict[str, Any]:
    return row(second, "response_item", {"type": kind, **payload})


def said(second: float, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": text}])


def event(second: float, kind: str, **payload: Any) -> dict[str, Any]:
    return row(second, "event_msg", {"type": kind, **payload})


def used(second: float, prompt: int, reply: int, total: int) -> dict[str, Any]:
    last = {"input_tokens": prompt, "output_tokens": reply}
    return event(second, "token_count", info={"last_token_usage": last, "total_token_usage": {"total_tokens": total}})


META = row(
    0,
    "session_meta",
    {
        "id": "s1",
        "cwd": "/repo",
        "cli_version": "0.90.0",
        "base_instructions": {"text": "You are Codex."},
        "git": {"commit_hash": "abc", "branch": "main"},
    },
)
SESSION = [
    META,
    row(1, "turn_context", {"cwd": "/repo", "model": "gpt-x", "effort": "high"}),
    said(1, "user", "<environment_context>\n<cwd>/repo</cwd>\n</environment_context>"),
    said(1, "user", "Fix the tests."),
    event(1, "user_message", message="Fix the tests."),
    item(3, "reasoning", summary=[{"type": "summary_text", "text": "Look first."}], content=None, encrypted_content="gAAA"),
    event(3, "agent_reasoning", text="Look first."),
    said(3, "assistant", "I look."),
    event(3, "agent_message", message="I look."),
    item(3, "function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
    used(3, 100, 10, 110),
    item(4, "function_call_output", call_id="c1", output='{"output":"a.py","metadata":{"exit_code":0}}'),
    used(4, 100, 10, 110),
    item(6, "custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
    used(6, 130, 20, 260),
    item(7, "custom_tool_call_output", call_id="c2", output=[{"type": "input_text", "text": "Done"}]),
    item(8, "reasoning", summary=[], content=None, encrypted_content="gAAA"),
    said(8, "assistant", "Fixed."),
    used(8, 160, 5, 425),
]
OLD = [
    {"id": "s0", "timestamp": "2025-07-01T10:00:00Z", "instructions": "Be brief.", "git": {"branch": "main"}},
    {"record_type": "state"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
]
FILES = [
    b"".join(line(value) for value in SESSION),
    orjson.dumps(META)[:110],
    b"".join(line(value) for value in OLD),
]


def landed(tmp_path: Path, values: list[Any]) -> Read:
    return read(FORMAT, [write_lines(tmp_path / "rollout.jsonl", values)])


def test_a_session_is_read_from_its_items_alone(tmp_path: Path) -> None:
    found = landed(tmp_path, SESSION)
    (attempt,) = found.attempts
    assert roles(attempt) == "suuAtAtA"
    assert found.skipped == {"interface": 3}
    system, context, request, first = attempt.turns[:4]
    assert (system["content"], request["content"]) == ("You are Codex.", "Fix the tests.")
    assert context["content"].startswith("<environment_context>")
    assert (first["content"], first["reasoning"]) == ("I look.", "Look first.")
    assert first["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command":["ls"]}'}}
    ]
    patch = attempt.turns[5]["tool_calls"][0]["function"]
    assert patch == {"name": "apply_patch", "arguments": '{"input":"*** Begin Patch"}'}
    assert (attempt.turns[6]["content"], attempt.turns[6]["tool_call_id"]) == ("Done", "c2")
    assert "reasoning" not in attempt.turns[7]
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("gpt-x", 390, 35)
    assert (attempt.fault, attempt.outcome, attempt.link) == (None, None, None)
    assert attempt.snapshot == '["/repo","abc","main","0.90.0"]'


def test_two_sessions_with_the_same_rows_are_two_attempts(tmp_path: Path) -> None:
    other = {**META, "payload": {**META["payload"], "id": "s2"}}
    paths = [write_lines(tmp_path / "a.jsonl", SESSION), write_lines(tmp_path / "b.jsonl", [other, *SESSION[1:]])]
    assert [roles(attempt) for attempt in read(FORMAT, paths).attempts] == ["suuAtAtA"] * 2


def test_reading_on_from_the_middle_gives_the_same_records(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", SESSION)
    whole = list(FORMAT.split(path))
    cut = whole[4]
    assert isinstance(cut, SourceRecord)
    assert list(FORMAT.split(path, cut.byte_start, cut.line)) == whole[4:]


def test_a_torn_record_and_the_whole_one_on_the_same_line(tmp_path: Path) -> None:
    torn = line(SESSION[7])[:70]
    path = write_lines(tmp_path / "a.jsonl", [*SESSION[:7], torn + line(SESSION[7]), *SESSION[8:]])
    found = read(FORMAT, [path])
    assert [(bad.reason, bad.line, bad.raw) for bad in found.bad] == [("bad_json", 8, torn)]
    (attempt,) = found.attempts
    assert roles(attempt) == "suuAtAtA" and attempt.turns[3]["content"] == "I look."


def test_the_session_is_known_where_its_first_line_was_torn(tmp_path: Path) -> None:
    found = landed(tmp_path, [line(META)[:60] + line(META), *SESSION[1:]])
    assert list(found.bundles) == ["s1"] and [roles(attempt) for attempt in found.attempts] == ["suuAtAtA"]


def test_rows_without_a_header_stay_together_and_apart_from_other_files(tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", [row(1, "turn_context", {"model": name}), *SESSION[3:]]) for name in "ab"]
    found = read(FORMAT, paths)
    assert sorted(attempt.model or "" for attempt in found.attempts) == ["a", "b"]


def test_equal_rows_without_times_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    found = landed(tmp_path, OLD)
    (attempt,) = found.attempts
    assert roles(attempt) == "suAuA" and found.skipped == {"meta": 1}
    assert attempt.started_at is not None


def test_what_was_aborted_or_failed_at_its_end_is_a_fault(tmp_path: Path) -> None:
    aborted = [*SESSION, said(9, "user", "More."), event(10, "turn_aborted", reason="interrupted")]
    (attempt,) = landed(tmp_path, aborted).attempts
    assert (attempt.fault, roles(attempt)) == ("aborted", "suuAtAtAu")
    (attempt,) = landed(tmp_path, [*aborted, said(11, "user", "Go on."), said(12, "assistant", "Yes.")]).attempts
    assert attempt.fault is None
    (attempt,) = landed(tmp_path, [*SESSION[:4], event(2, "error", message="rate limit")]).attempts
    assert (attempt.fault, attempt.calls, roles(attempt)) == ("model_error", [], "suu")


def test_a_compaction_begins_an_attempt_under_the_shortened_history(tmp_path: Path) -> None:
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary"}]}]
    for compacted in ({"message": "Summary"}, {"message": "", "replacement_history": history}):
        trunk, later = landed(
            tmp_path, [*SESSION, row(9, "compacted", compacted), said(10, "user", "Go on."), said(12, "assistant", "Yes.")]
        ).attempts
        assert (roles(trunk), roles(later)) == ("suuAtAtA", "suuA")
        assert [turn["content"] for turn in later.turns[:2]] == ["You are Codex.", "Summary"]
        assert (later.link, later.parent_ref) == ("compaction", trunk.ref)


def test_the_history_of_a_forked_session_is_context(tmp_path: Path) -> None:
    own = {**META, "timestamp": "2026-11-20T11:00:00.000Z", "payload": {**META["payload"], "id": "s2"}}
    copied = [{**value, "timestamp": "2026-11-20T11:00:00.200Z"} for value in SESSION]
    new = [
        {**said(0, role, text), "timestamp": f"2026-11-20T11:00:0{second}Z"}
        for second, role, text in [(5, "user", "And?"), (9, "assistant", "So.")]
    ]
    (attempt,) = landed(tmp_path, [own, *copied, *new]).attempts
    assert (roles(attempt), attempt.link, attempt.num_shared_turns) == ("suuatatauA", "branch", 8)


def test_turns_that_were_taken_back_become_a_branch(tmp_path: Path) -> None:
    rolled = event(9, "thread_rolled_back", num_turns=1)
    kept, other = landed(
        tmp_path, [*SESSION, rolled, said(10, "user", "Write docs."), said(12, "assistant", "Written.")]
    ).attempts
    assert (roles(kept), roles(other), other.link, other.num_shared_turns) == ("suuAtAtA", "suuA", "branch", 2)


def test_a_subagent_s_session_says_so(tmp_path: Path) -> None:
    meta = {**META, "payload": {**META["payload"], "source": {"subagent": "review"}}}
    (attempt,) = landed(tmp_path, [meta, *SESSION[1:]]).attempts
    assert (attempt.link, attempt.parent_ref) == ("subagent", None)


def test_names_of_older_versions_are_read(tmp_path: Path) -> None:
    found = landed(
        tmp_path,
        [
            META,
            said(1, "user", "List."),
            item(2, "tool_call", tool="shell", arguments={"command": "ls"}, call_id="c1"),
            item(3, "tool_result", call_id="c1", result={"content": "a.py", "success": True}),
            event(3, "turn.completed", usage={"input_tokens": 5}),
            item(4, "ghost_snapshot", ghost_commit={}),
        ],
    )
    (attempt,) = found.attempts
    assert roles(attempt) == "suAt" and attempt.turns[3]["content"] == "a.py"
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command":"ls"}'}
    assert found.skipped == {"interface": 1, "meta": 1}


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"no": "type"},
        {**META, "payload": 5},
        {**META, "payload": {"id": "s1", "git": "main"}},
        {**META, "payload": {"id": "s1", "instructions": {"text": 5}}},
        {**SESSION[3], "timestamp": "yesterday"},
        item(1, "message", role=None, content=[]),
        item(1, "message", role="user", content=5),
        item(1, "function_call_output", output="x"),
        row(1, "compacted", {"message": 5}),
        row(1, "compacted", {"replacement_history": ["x"]}),
    ],
)
def test_a_row_of_another_shape_is_refused_alone(tmp_path: Path, value: Any) -> None:
    found = landed(tmp_path, [*SESSION, value])
    assert [bad.reason for bad in found.bad] == ["wrong_shape"]
    assert [roles(attempt) for attempt in found.attempts] == ["suuAtAtA"]


def test_the_order_of_records_changes_nothing(tmp_path: Path) -> None:
    pieces = [piece for piece in FORMAT.split(write_lines(tmp_path / "a.jsonl", SESSION)) if isinstance(piece, SourceRecord)]
    records = stored(FORMAT, *[piece.value for piece in pieces if piece.skip_reason is None])
    assert bundle_of(FORMAT, records[::-1]) == bundle_of(FORMAT, records)


@given(st.randoms(use_true_random=False))
def test_rows_of_any_shape_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    rows = [*SESSION, row(9, "compacted", {"message": "Summary"}), event(10, "thread_rolled_back", num_turns=1)]
    reads_or_refuses(FORMAT, tmp_path_factory.mktemp("mutated"), rows, chance)


def test_real_rollouts(shared_logs: Path) -> None:
    paths = sorted((shared_logs / "codex_cli").rglob("*.jsonl"))
    assert {format.name for path in paths if (format := registry.detect(path))} == {"codex_cli"}
    found = read(FORMAT, paths)
    assert (found.refused, found.bad) == ([], [])
    assert sorted(roles(attempt) for attempt in found.attempts) == ["", "At", "suA", "suAtA"]
    (failed,) = [attempt for attempt in found.attempts if not attempt.turns]
    assert failed.fault == "model_error"


def test_bad_records_say_where(tmp_path: Path) -> None:
    _, bad = FORMAT.split(write_lines(tmp_path / "a.jsonl", [META, {"no": "type"}]))
    assert isinstance(bad, BadRecord) and (bad.line, bad.byte_start) == (2, len(line(META)))
