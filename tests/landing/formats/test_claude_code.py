"""Claude Code sessions."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing.claude_code import ClaudeCode
from pipelines.landing.format import Attempt, BadRecord, SourceRecord
from tests.landing.bundles import bundle_of, read, reads_or_refuses, roles
from tests.landing.lines import attempts, line, stored, write_lines

FORMAT = ClaudeCode()
FOLDERS = {"claude_code"}


def row(number: int, kind: str, parent: int | None, **changes: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": None if parent is None else f"u{parent}",
        "isSidechain": False,
        "sessionId": "s1",
        "cwd": "/repo",
        "gitBranch": "main",
        "version": "2.1.2",
        "timestamp": f"2026-11-20T10:{number // 60:02}:{number % 60:02}.000Z",
        **changes,
    }


def user(number: int, parent: int | None, content: Any, **changes: Any) -> dict[str, Any]:
    return row(number, "user", parent, message={"role": "user", "content": content}, **changes)


def result(number: int, parent: int | None, call: str, content: Any = "ok", **changes: Any) -> dict[str, Any]:
    return user(number, parent, [{"type": "tool_result", "tool_use_id": call, "content": content}], **changes)


def answer(number: int, parent: int | None, message_id: str, *blocks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    message = {
        "id": message_id,
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": None,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 85, "output_tokens": number},
        **changes.pop("message", {}),
    }
    return row(number, "assistant", parent, message=message, requestId="r", **changes)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(call: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


SESSION = [
    {"type": "summary", "summary": "Tests", "leafUuid": "u9"},
    row(0, "progress", None, data={"type": "hook_progress"}),
    user(1, 0, "Fix the tests."),
    answer(2, 1, "m1", {"type": "thinking", "thinking": "Look first.", "signature": "x"}),
    answer(3, 2, "m1", text("I look.")),
    answer(4, 3, "m1", use("t1", command="ls")),
    answer(5, 4, "m1", use("t2", command="pwd"), message={"stop_reason": "tool_use"}),
    result(6, 4, "t1", "a.py"),
    result(7, 5, "t2", [text("/re"), text("po")]),
    row(8, "system", 7, subtype="turn_duration"),
    answer(9, 8, "m2", text("Done."), message={"stop_reason": "end_turn"}),
]
"""Two API messages, the first on four lines with two parallel calls, whose results hang on their own call's line."""

FILES = [
    b"".join(line(value) for value in SESSION),
    line(SESSION[0]),
    line({"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}}),
    line({"type": "queue-operation", "operation": "dequeue", "sessionId": "s1"}),
    line(SESSION[2])[:150],
    b'{"agentType": "Explore"}',
    b'{\n  "agentType": "Explore",\n  "description": "Look around"\n}\n',
]


def one(*values: Any) -> Attempt:
    (attempt,) = attempts(FORMAT, *[value for value in values if value["type"] != "summary"])
    return attempt


def test_one_api_message_on_several_lines_is_one_turn_and_its_usage_counts_once() -> None:
    attempt = one(*SESSION)
    assert roles(attempt) == "uAttA"
    first = attempt.turns[1]
    assert (first["content"], first["reasoning"]) == ("I look.", "Look first.")
    assert [call["id"] for call in first["tool_calls"]] == ["t1", "t2"]
    assert first["tool_calls"][0]["function"] == {"name": "Bash", "arguments": '{"command":"ls"}'}
    assert [(turn["tool_call_id"], turn["content"]) for turn in attempt.turns[2:4]] == [("t1", "a.py"), ("t2", "/repo")]
    assert [call["call_id"] for call in attempt.calls] == ["m1", "m2"]
    assert [turn.get("finish_reason") for turn in attempt.turns if turn["sampled"]] == ["tool_use", "end_turn"]
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (200, 5 + 9)
    assert (attempt.model, attempt.link, attempt.fault, attempt.outcome) == ("claude-x", None, None, None)
    assert attempt.snapshot == '["/repo","main","2.1.2"]'
    assert attempt.started_at and attempt.started_at.isoformat() == "2026-11-20T10:00:00+00:00"
    assert attempt.ended_at and attempt.ended_at.isoformat() == "2026-11-20T10:00:09+00:00"
    assert len(attempt.record_ids) == len(SESSION) - 1


def test_lines_logged_again_are_counted_and_change_nothing() -> None:
    again = [answer(4, 3, "m1", use("t1", command="ls")), answer(9, 8, "m2", text("Done."), message={"usage": None})]
    bundle = FORMAT.attempts(stored(FORMAT, *SESSION[1:], *again))
    (attempt,) = bundle.attempts
    assert [kind for _, kind in bundle.left.values()] == ["superseded"] * 2
    assert roles(attempt) == "uAttA"
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (200, 14)


def test_an_answer_copied_under_new_uuids_is_sampled_once() -> None:
    attempt = one(*SESSION, answer(10, 9, "m2", text("Done.")), user(11, 10, "Thanks."), answer(12, 11, "m3", text("Bye.")))
    assert roles(attempt) == "uAttAuA"


def test_another_answer_to_an_earlier_prompt_is_a_branch_that_shares_its_beginning() -> None:
    trunk, branch = attempts(
        FORMAT,
        *SESSION[1:],
        user(20, 8, "No, use pytest."),
        answer(21, 20, "m3", text("As you wish.")),
        user(30, 20, "Never mind."),
    )
    assert (roles(trunk), trunk.link) == ("uAttuA", None)
    assert (roles(branch), branch.link, branch.parent_ref, branch.num_shared_turns) == ("uattA", "branch", trunk.ref, 4)
    assert [call["call_id"] for call in branch.calls] == ["m2"]
    assert not {*trunk.record_ids} & {*branch.record_ids}


def test_a_prompt_that_nothing_answers_is_no_attempt() -> None:
    bundle = FORMAT.attempts(stored(FORMAT, *SESSION[1:], user(20, 8, "No, wait.")))
    (attempt,) = bundle.attempts
    assert bundle.left == {"rec-10": (attempt.ref, "unanswered")}
    assert FORMAT.attempts(stored(FORMAT, user(1, None, "Hello?"))).attempts == []
    alone = FORMAT.attempts(stored(FORMAT, row(1, "progress", None)))
    assert alone.left == {"rec-0": (None, "unanswered")}


AGENT = {"isSidechain": True, "agentId": "a7"}
SUBAGENT = [
    user(40, None, "Count the files.", **AGENT),
    answer(41, 40, "m8", use("t9", command="ls"), **AGENT),
    result(42, 41, "t9", **AGENT),
    answer(43, 42, "m9", text("Three."), **AGENT),
]
ASKED = [
    user(1, None, "How many files?"),
    answer(2, 1, "m1", use("t0", "Bash"), use("t1", "Task", prompt="Count the files.", description="count")),
]


@pytest.mark.parametrize(
    "told",
    [
        [result(50, 2, "t1", toolUseResult={"agentId": "a7", "status": "completed"})],
        [row(39, "progress", 2, data={"type": "agent_progress", "agentId": "a7"}, parentToolUseID="t1"), result(50, 39, "t1")],
        [result(50, 2, "t1")],  # the prompt is the same
    ],
)
def test_a_subagent_is_an_attempt_of_its_own_linked_to_the_call_that_started_it(told: list[dict[str, Any]]) -> None:
    values = [*ASKED, *told, answer(51, 50, "m2", text("Three."))]
    found = attempts(FORMAT, *values, *SUBAGENT)
    trunk, agent = sorted(found, key=lambda attempt: attempt.link or "")
    assert (roles(trunk), trunk.link) == ("uAtA", None)
    assert (roles(agent), agent.link, agent.parent_ref, agent.parent_tool_call_id) == ("uAtA", "subagent", trunk.ref, "t1")
    assert agent.num_shared_turns == 0


def test_a_subagent_whose_start_is_not_logged_stands_alone() -> None:
    (agent,) = attempts(FORMAT, *SUBAGENT)
    assert (agent.link, agent.parent_ref, agent.parent_tool_call_id) == ("subagent", None, None)


def test_two_subagents_with_one_prompt_have_a_call_each() -> None:
    asked = answer(2, 1, "m1", use("t1", "Agent", prompt="Count."), use("t2", "Agent", prompt="Count."))
    agents = [
        value
        for number, agent in ((10, "a1"), (20, "a2"))
        for value in (
            user(number, None, "Count.", isSidechain=True, agentId=agent),
            answer(number + 1, number, f"m{agent}", text("3"), isSidechain=True, agentId=agent),
        )
    ]
    found = attempts(FORMAT, user(1, None, "Count twice."), asked, *agents)
    assert sorted(attempt.parent_tool_call_id or "" for attempt in found) == ["", "t1", "t2"]


def test_old_versions_keep_subagents_between_the_lines_of_the_session() -> None:
    calls = [use("t1", "Task", prompt="Count."), use("t2", "Task", prompt="Weigh.")]
    side = [
        value
        for number, prompt in ((10, "Weigh."), (20, "Count."))
        for value in (
            user(number, None, prompt, isSidechain=True),
            answer(number + 1, number, f"m{number}", text("3"), isSidechain=True),
        )
    ]
    trunk, *agents = sorted(
        attempts(FORMAT, user(1, None, "Hi"), answer(2, 1, "m1", *calls), *side, result(30, 2, "t1"), result(31, 30, "t2")),
        key=lambda attempt: (attempt.link or "", attempt.parent_tool_call_id),
    )
    assert roles(trunk) == "uAtt"
    assert [(roles(agent), agent.turns[0]["content"], agent.parent_tool_call_id) for agent in agents] == [
        ("uA", "Count.", "t1"),
        ("uA", "Weigh.", "t2"),
    ]


def test_a_subagent_that_starts_with_a_copy_of_the_conversation_sampled_none_of_it() -> None:
    copies = [{**value, "isSidechain": True, "agentId": "a9"} for value in SESSION[1:]]
    own = [
        user(60, 9, "Summarise.", isSidechain=True, agentId="a9"),
        answer(61, 60, "m7", text("Done."), isSidechain=True, agentId="a9"),
    ]
    trunk, agent = sorted(attempts(FORMAT, *SESSION[1:], *copies, *own), key=lambda attempt: attempt.link or "")
    assert (roles(trunk), roles(agent)) == ("uAttA", "uattauA")
    assert [call["call_id"] for call in agent.calls] == ["m7"]


@pytest.mark.parametrize("named", ["u9", None])
def test_a_compaction_begins_an_attempt_linked_to_the_longer_one(named: str | None) -> None:
    boundary = row(20, "system", None, subtype="compact_boundary", logicalParentUuid=named)
    after = [
        boundary,
        user(21, 20, "This session is being continued. Summary: …", isCompactSummary=True),
        answer(22, 21, "m3", text("I go on.")),
    ]
    trunk, later = attempts(FORMAT, *SESSION[1:], *after)
    assert (roles(trunk), roles(later)) == ("uAttA", "uA")
    assert (later.link, later.parent_ref, later.num_shared_turns) == ("compaction", trunk.ref, 0)


@pytest.mark.parametrize(("anchor", "expected"), [("u21", "uattauA"), ("u20", "attauuA")])
def test_messages_that_a_compaction_kept_are_context_of_what_follows(anchor: str, expected: str) -> None:
    segment = {"headUuid": "u2", "anchorUuid": anchor, "tailUuid": "u9"}
    boundary = row(20, "system", None, subtype="compact_boundary", compactMetadata={"preservedSegment": segment})
    summary = user(21, 20, "Summary: …", isCompactSummary=True)
    after = [user(22, 21, "Go on."), answer(23, 22, "m3", text("I go on."))]
    trunk, later = attempts(FORMAT, *SESSION[1:], boundary, summary, *after)
    assert (roles(trunk), roles(later), later.link) == ("uAttA", expected, "compaction")
    segment["headUuid"] = "gone"
    _, later = attempts(FORMAT, *SESSION[1:], boundary, summary, *after)
    assert roles(later) == "uuA"


def test_lines_of_a_forked_session_that_are_the_other_session_s_are_context() -> None:
    fork = {"forkedFrom": {"sessionId": "s0", "messageUuid": "…"}}
    copies = [{**value, **fork} for value in SESSION[1:]]
    attempt = one(*copies, user(20, 9, "Now the docs."), answer(21, 20, "m3", text("Written.")))
    assert roles(attempt) == "uattauA"
    assert (attempt.link, attempt.num_shared_turns, attempt.num_reply_tokens) == ("branch", 5, 21)


def test_a_session_whose_beginning_is_missing_says_so() -> None:
    attempt = one(answer(9, 8, "m2", text("Done.")))
    assert (attempt.link, attempt.parent_ref, roles(attempt)) == ("continuation", None, "A")


def api_error(number: int, parent: int) -> dict[str, Any]:
    message = {"model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    return answer(number, parent, "e1", text("API Error: 529 overloaded"), isApiErrorMessage=True, message=message)


def test_an_api_error_at_the_end_is_a_fault_and_no_turn() -> None:
    attempt = one(*SESSION, user(10, 9, "More."), api_error(11, 10))
    assert (roles(attempt), attempt.fault, len(attempt.calls), attempt.model) == ("uAttAu", "model_error", 2, "claude-x")
    failed = one(user(1, None, "Hi"), api_error(2, 1))
    assert (roles(failed), failed.fault, failed.calls, failed.outcome) == ("u", "model_error", [], None)


def test_an_api_error_that_was_got_over_is_no_fault() -> None:
    attempt = one(user(1, None, "Hi"), api_error(2, 1), user(3, 2, "continue"), answer(4, 3, "m1", text("Yes?")))
    assert (roles(attempt), attempt.fault) == ("uuA", None)


def test_what_else_the_harness_says_for_the_model_is_not_sampled() -> None:
    silent = answer(10, 9, "e2", text("No response requested."), message={"model": "<synthetic>"})
    attempt = one(*SESSION, silent, user(11, 10, "Go on."), answer(12, 11, "m3", text("Well.")))
    assert (roles(attempt), attempt.model, attempt.fault) == ("uAttAauA", "claude-x", None)


@pytest.mark.parametrize("content", ["[Request interrupted by user]", [text("[Request interrupted by user for tool use]")]])
def test_an_interrupted_attempt_was_aborted_unless_it_went_on(content: Any) -> None:
    stopped = [*SESSION, user(10, 9, content)]
    assert one(*stopped).fault == "aborted"
    assert one(*stopped, user(11, 10, "Go on."), answer(12, 11, "m3", text("Well."))).fault is None


def test_text_that_the_harness_put_before_the_model_stays_as_it_was_logged() -> None:
    command = user(1, None, "<command-name>/init</command-name>")
    body = user(2, 1, [text("Write a CLAUDE.md.")], isMeta=True)
    attempt = one(command, body, answer(3, 2, "m1", text("Done.")))
    assert [turn["content"] for turn in attempt.turns[:2]] == ["<command-name>/init</command-name>", "Write a CLAUDE.md."]


def test_images_and_unknown_blocks_stay_as_parts() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}
    attempt = one(
        user(1, None, [text("See:"), image]),
        answer(2, 1, "m1", use("t1")),
        result(3, 2, "t1", [text("Here:"), image]),
        answer(4, 3, "m2", {"type": "future_gadget"}),
    )
    assert attempt.turns[0]["content"] == [text("See:"), image]
    assert attempt.turns[2]["content"] == [text("Here:"), image]
    assert attempt.turns[3]["content"] == [{"type": "future_gadget"}] and attempt.turns[3]["sampled"]


def test_results_of_the_server_s_own_tools_are_not_sampled() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "w1", "content": [{"type": "web_search_result", "url": "x"}]}
    attempt = one(
        user(1, None, "Search."),
        answer(2, 1, "m1", {**use("w1", "web_search"), "type": "server_tool_use"}, found, text("It is.")),
    )
    assert roles(attempt) == "uAtA" and len(attempt.calls) == 1


def test_a_log_without_parents_is_a_list() -> None:
    values = [{key: kept for key, kept in value.items() if key != "parentUuid"} for value in SESSION[1:]]
    assert roles(one(*values)) == "uAttA"


def test_parents_in_a_circle_end() -> None:
    (attempt,) = attempts(FORMAT, user(1, 2, "Hi"), answer(2, 1, "m1", text("Hi.")))
    assert roles(attempt) == "uA"
    assert roles(one(answer(1, 1, "m1", text("Hi.")))) == "A"


def test_lines_about_the_session_are_skipped_with_a_reason_and_unknown_ones_too(tmp_path: Path) -> None:
    notes = [
        SESSION[0],
        {"type": "future-widget-event", "widgetId": "w", "sessionId": "s1"},
        {"type": "last-prompt", "lastPrompt": "x", "sessionId": "s1"},
        {"agentType": "Explore"},
    ]
    found = read(FORMAT, [write_lines(tmp_path / "s1.jsonl", [*SESSION[:3], *notes, *SESSION[3:]])])
    assert found.skipped == {"meta": 5} and not found.bad
    assert [roles(attempt) for attempt in found.attempts] == ["uAttA"]


def test_the_note_beside_a_subagent_s_file_is_skipped_whole(tmp_path: Path) -> None:
    path = tmp_path / "agent-1.meta.json"
    path.write_text(json.dumps({"agentType": "Explore", "description": "Look"}, indent=2))
    (piece,) = FORMAT.split(path)
    assert isinstance(piece, SourceRecord) and piece.skip_reason == "meta"


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"type": 5},
        {"no": "type"},
        user(1, None, 5),
        user(1, None, ["text"]),
        user(1, None, [{"type": "tool_result", "tool_use_id": None, "content": "x"}]),
        user(1, None, [{"type": "tool_result", "tool_use_id": "t", "content": 5}]),
        user(1, None, [{"type": "text", "text": None}]),
        answer(1, None, "m1", {"type": "tool_use", "id": 5, "name": "Bash"}),
        answer(1, None, "m1", message={"id": 5}),
        {**SESSION[2], "message": None},
        {**SESSION[2], "sessionId": None},
        {**SESSION[2], "uuid": ""},
        {**SESSION[2], "parentUuid": 5},
        {**SESSION[2], "agentId": 5},
        {**SESSION[2], "timestamp": "yesterday"},
    ],
)
def test_a_line_of_another_shape_is_refused_alone(tmp_path: Path, value: Any) -> None:
    found = read(FORMAT, [write_lines(tmp_path / "s1.jsonl", [*SESSION, value])])
    assert [bad.reason for bad in found.bad] == ["wrong_shape"]
    assert [roles(attempt) for attempt in found.attempts] == ["uAttA"]


def test_a_torn_line_costs_itself(tmp_path: Path) -> None:
    torn = line(SESSION[3])[:60]
    path = write_lines(tmp_path / "s1.jsonl", [*SESSION[:3], torn + b"\n", *SESSION[3:-1], torn + line(SESSION[-1])])
    found = read(FORMAT, [path])
    assert [bad.reason for bad in found.bad] == ["bad_json", "bad_json"]
    assert [roles(attempt) for attempt in found.attempts] == ["uAttA"]


EVERYTHING = [
    *SESSION[1:],
    user(20, 8, "No, use pytest."),
    answer(21, 20, "m3", use("t5", "Task", prompt="Count the files.")),
    *SUBAGENT,
    row(50, "system", None, subtype="compact_boundary", logicalParentUuid="u21"),
    user(51, 50, "Summary", isCompactSummary=True),
    answer(52, 51, "m4", text("On.")),
    answer(53, 51, "m5", text("Or so.")),
]


@given(st.randoms(use_true_random=False), st.integers(0, len(EVERYTHING)))
def test_the_order_in_which_lines_arrive_changes_nothing(shuffled: random.Random, repeated: int) -> None:
    records = stored(FORMAT, *EVERYTHING)
    expected = bundle_of(FORMAT, records)
    assert Counter(attempt.link for attempt in expected.attempts) == {None: 1, "branch": 2, "subagent": 1, "compaction": 1}
    shuffled.shuffle(records)
    assert bundle_of(FORMAT, records) == expected


@given(st.randoms(use_true_random=False))
def test_lines_of_any_shape_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    reads_or_refuses(FORMAT, tmp_path_factory.mktemp("mutated"), EVERYTHING, chance)


def test_real_sessions(shared_logs: Path) -> None:
    found = read(FORMAT, sorted(path for path in (shared_logs / "claude_code").rglob("*") if path.is_file()))
    assert (found.refused, found.bad) == ([], [])
    ids = [call["call_id"] for attempt in found.attempts for call in attempt.calls if call["call_id"]]
    assert len(ids) == len(set(ids))
    assert all(attempt.outcome is None and not attempt.exact_tokens for attempt in found.attempts)
    assert Counter(attempt.link for attempt in found.attempts)["subagent"] >= 10
    assert set(found.left) <= {"superseded", "unanswered"}


def test_real_messages_on_several_lines_are_merged(shared_logs: Path) -> None:
    (path,) = (shared_logs / "claude_code").rglob("7acd37a8*.jsonl")
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    sent = [row["message"] for row in rows if row["type"] == "assistant" and not row.get("isApiErrorMessage")]
    usage = {message["id"]: message["usage"]["output_tokens"] for message in sent if message["model"] != "<synthetic>"}
    (attempt,) = read(FORMAT, [path]).attempts
    assert len(sent) > len(usage) == len(attempt.calls)
    assert attempt.num_reply_tokens == sum(usage.values())
    calls = [call["id"] for turn in attempt.turns for call in turn.get("tool_calls", ())]
    answered = [turn["tool_call_id"] for turn in attempt.turns if turn["role"] == "tool"]
    assert sorted(calls) == sorted(answered) and len(set(calls)) == len(calls)


def test_real_subagents_are_apart(shared_logs: Path) -> None:
    folder = shared_logs / "claude_code" / "real" / "workflow_basic"
    found = read(FORMAT, sorted(path for path in folder.rglob("*") if path.is_file()))
    assert len(found.bundles) == 1
    assert sorted((attempt.link or "", roles(attempt)) for attempt in found.attempts) == [
        ("", "uAt"),
        ("subagent", "uAA"),
        ("subagent", "uAA"),
    ]


def test_bad_records_say_where(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s1.jsonl", [SESSION[2], user(2, 1, 5)])
    _, bad = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and (bad.line, bad.byte_start) == (2, len(line(SESSION[2])))
