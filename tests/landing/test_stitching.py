"""From calls to attempts: prefixes, branches, choices, shortened contexts, gaps, whatever the order of arrival."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.landing.format import Attempt
from pipelines.landing.openai_chat import OpenAIChat
from pipelines.landing.roots import root_of
from pipelines.landing.stitching import LoggedCall, attempt_of, chains
from tests.landing.formats.chat_lines import ASK, SYSTEM, conversation, logged, said, told, tool_call, without_records
from tests.landing.lines import attempts

FORMAT = OpenAIChat()


def texts(attempt: Attempt) -> list[str]:
    """What was sampled in an attempt."""
    return [turn["content"] for turn in attempt.turns if turn["sampled"]]


def test_calls_that_go_on_from_each_other_are_one_attempt() -> None:
    (attempt,) = attempts(FORMAT, *conversation("a", "b", "c"))
    assert texts(attempt) == ["a", "b", "c"]
    assert [turn["call"] for turn in attempt.turns] == [None, None, 0, None, 1, None, 2]
    assert (attempt.num_gaps, attempt.parent_ref, attempt.link) == (0, None, None)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (30, 6)


def test_a_branch_shares_its_first_turns_once() -> None:
    calls = conversation("a", "b", "c")
    turns = calls[1]["request"]["messages"]
    other = logged("other", turns, said("b2"), at=9)
    main, branch = attempts(FORMAT, *calls, other)
    assert (texts(main), texts(branch)) == (["a", "b", "c"], ["b2"])
    assert (branch.link, branch.parent_ref, branch.num_shared_turns, branch.num_gaps) == ("branch", main.ref, 3, 0)
    assert len(branch.calls) == 1 and branch.record_ids == ["rec-3"]


def test_choices_of_one_answer_are_attempts_side_by_side() -> None:
    first = logged("n", [SYSTEM, ASK], said("a"), said("b"))
    following = logged("m", [SYSTEM, ASK, said("b"), {"role": "user", "content": "more"}], said("c"), at=1)
    found = attempts(FORMAT, first, following)
    assert sorted(texts(attempt) for attempt in found) == [["a"], ["b", "c"]]
    assert {tuple(attempt.record_ids) for attempt in found} == {("rec-0",), ("rec-0", "rec-1")}
    assert [attempt.num_reply_tokens for attempt in found] == [None, None]  # usage is of both choices together


def test_a_gap_is_counted_and_not_sampled() -> None:
    first, _, third = conversation("a", "b", "c")
    (attempt,) = attempts(FORMAT, first, third)
    assert (texts(attempt), attempt.num_gaps) == (["a", "c"], 1)
    (alone,) = attempts(FORMAT, third)
    assert (texts(alone), alone.num_gaps) == (["c"], 2)


def test_equal_first_calls_of_two_attempts_stay_apart() -> None:
    prompt = [SYSTEM, ASK]
    one = {"messages": prompt, "response": {"choices": [{"message": said("a")}]}, "timestamp": "2026-11-20T10:00:00Z"}
    two = {**one, "timestamp": "2026-11-20T10:00:05Z"}
    assert [texts(attempt) for attempt in attempts(FORMAT, one, two)] == [["a"], ["a"]]
    more = [*prompt, said("a"), {"role": "user", "content": "more"}]
    three, four = (
        {"messages": more, "response": {"choices": [{"message": said(text)}]}, "timestamp": f"2026-11-20T10:00:1{text}Z"}
        for text in "12"
    )
    assert sorted(texts(attempt) for attempt in attempts(FORMAT, four, one, three, two)) == [["a", "1"], ["a", "2"]]


def test_reasoning_that_is_not_sent_back_stays_with_its_call() -> None:
    """The template drops it, so that the second prompt is no extension of the first; each call keeps its own tokens."""
    thinks = said("a", reasoning_content="hm")
    first = logged("1", [SYSTEM, ASK], thinks)
    first["response"]["choices"][0]["token_ids"] = [7, 8]
    second = logged("2", [SYSTEM, ASK, said(" a\n"), told("ok")], said("b"), at=1)
    (attempt,) = attempts(FORMAT, second, first)
    assert [turn.get("reasoning") for turn in attempt.turns if turn["sampled"]] == ["hm", None]
    assert [call["token_ids"] for call in attempt.calls] == [[7, 8], None]


def test_a_shortened_context_is_linked_and_what_it_repeats_is_not_sampled_again() -> None:
    calls = conversation("a", "b", "c")
    last = [*calls[-1]["request"]["messages"], said("c", tool_calls=[tool_call()]), told("seen c")]
    summary = {"role": "user", "content": "Summary: all went well."}
    short = logged("short", [SYSTEM, ASK, summary, *last[-4:]], said("d"), at=9)
    further = logged("further", [*short["request"]["messages"], said("d"), told("ok")], said("e"), at=10)
    main, rest = attempts(FORMAT, further, *calls, short)
    assert (texts(main), texts(rest)) == (["a", "b", "c"], ["d", "e"])
    assert (rest.link, rest.parent_ref, rest.num_shared_turns, rest.num_gaps) == ("compaction", main.ref, 2, 0)
    # also where the first answers were kept, and where what follows is longer than what came before
    kept = logged("kept", [*last[:4], summary, *last[-4:]], said("d"), at=9)
    long = conversation("e", "f", "g", "h", prompt=[*kept["request"]["messages"], said("d"), told("ok")], name="long")
    for number, call in enumerate(long):
        call["response"]["created"] += 10 + number
    main, rest = attempts(FORMAT, *calls, kept, *long)
    assert (texts(main), texts(rest)) == (["a", "b", "c"], ["d", "e", "f", "g", "h"])
    assert (rest.link, rest.num_shared_turns, rest.num_gaps) == ("compaction", 3, 0)


def test_an_answer_that_comes_again_is_a_gap_and_no_shortened_context() -> None:
    first, _, third = conversation("same", "same", "c")
    (attempt,) = attempts(FORMAT, first, third)
    assert (texts(attempt), attempt.num_gaps, attempt.link) == (["same", "c"], 1, None)


def test_a_log_that_names_its_conversation_links_what_begins_alike() -> None:
    calls = [{**call, "session_id": "s"} for call in conversation("a", "b", "c")]
    summary = {"role": "user", "content": "Summary: all went well."}
    short = {**logged("short", [SYSTEM, ASK, summary], said("d"), at=9), "session_id": "s"}
    main, rest = attempts(FORMAT, *calls, short)
    assert (rest.link, rest.parent_ref, rest.num_shared_turns) == ("compaction", main.ref, 2)
    other = {**logged("other", [SYSTEM, {"role": "user", "content": "Something else."}], said("d"), at=9), "session_id": "s"}
    assert [attempt.link for attempt in attempts(FORMAT, *calls, other)] == [None, None]
    again = {**logged("again", [SYSTEM, ASK], said("z"), at=9), "session_id": "s"}
    assert [attempt.link for attempt in attempts(FORMAT, *calls, again)] == [None, None]


def test_the_same_call_in_two_wrappings_counts_once() -> None:
    one = logged("1", [SYSTEM, ASK], said("a"))
    two = {"messages": [SYSTEM, ASK], "response": one["response"], "cost": 0.5}
    for values in ([one, two], [two, one]):
        (attempt,) = attempts(FORMAT, *values)
        assert (texts(attempt), attempt.cost_usd, attempt.num_prompt_tokens) == (["a"], 0.5, 10)


def test_a_failed_call_and_its_retry() -> None:
    first, second = conversation("a", "b")
    failed = {**second, "response": {"error": {"message": "overloaded"}}, "timestamp": 1_790_000_000}
    found = attempts(FORMAT, first, second, failed)
    assert sorted((texts(attempt), attempt.fault) for attempt in found) == [([], "model_error"), (["a", "b"], None)]
    late = {**failed, "timestamp": 1_790_000_009, "request": {**failed["request"], "model": "alias"}}
    found = attempts(FORMAT, first, second, late)
    assert [(texts(attempt), attempt.fault, attempt.link) for attempt in found] == [
        (["a", "b"], None, None),
        ([], "model_error", "branch"),
    ]
    (attempt,) = attempts(FORMAT, first, late)
    assert (texts(attempt), attempt.fault, attempt.model) == (["a"], "model_error", "model-1")


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls of attempts that fork: each goes on from one of the earlier ones, or begins an attempt; some answers are equal."""
    calls: list[dict[str, Any]] = []
    ends: list[list[dict[str, Any]]] = [[SYSTEM, ASK]]
    for number in range(draw(st.integers(1, 10))):
        turns = ends[draw(st.integers(0, len(ends) - 1))]
        answer = said(draw(st.sampled_from("xyz")), tool_calls=[tool_call()])
        calls.append(logged(f"id-{number}", turns, answer, at=draw(st.integers(0, 3)) + 4 * number))
        ends.append([*turns, answer, told(draw(st.sampled_from("pq")))])
    return calls


@settings(max_examples=150, deadline=None)
@given(trees(), st.integers(0, 1 << 30))
def test_any_order_and_any_delivery_gives_the_same_attempts(calls: list[dict[str, Any]], seed: int) -> None:
    expected = attempts(FORMAT, *calls)
    mixed = [*calls, *random.Random(seed).choices(calls, k=3)]
    random.Random(seed).shuffle(mixed)
    assert without_records(attempts(FORMAT, *mixed)) == without_records(expected)
    # what was sampled is sampled once, whatever forks, and nothing is missing in a log that has every call
    answers = Counter(call["response"]["choices"][0]["message"]["content"] for call in calls)
    assert sum((Counter(texts(attempt)) for attempt in expected), Counter[str]()) == answers
    assert sum(len(attempt.calls) for attempt in expected) == len(calls)
    assert all(attempt.num_gaps == 0 for attempt in expected)
    for attempt in expected:
        shared = attempt.turns[: attempt.num_shared_turns]
        assert not any(turn["sampled"] for turn in shared)


@settings(max_examples=100, deadline=None)
@given(trees(), st.data())
def test_a_call_that_was_never_logged_is_sampled_nowhere(calls: list[dict[str, Any]], data: st.DataObject) -> None:
    missing = data.draw(st.integers(0, len(calls) - 1))
    rest = [call for number, call in enumerate(calls) if number != missing]
    found = attempts(FORMAT, *rest) if rest else []
    assert sum(len(attempt.calls) for attempt in found) == len(rest)
    answers = Counter(call["response"]["choices"][0]["message"]["content"] for call in rest)
    assert sum((Counter(texts(attempt)) for attempt in found), Counter[str]()) == answers


def test_ten_thousand_calls_with_equal_roots_cost_no_square() -> None:
    """Each call's turns are looked at a fixed number of times."""
    num_looks = 0

    class Turn(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            nonlocal num_looks
            num_looks += key == "id"
            return super().__getitem__(key)

    ask, answer, more = Turn(id="ask", role="user"), Turn(id="same", role="assistant"), Turn(id="more", role="user")
    calls = [LoggedCall(record_ids=[f"a{number:05}"], prompt=[ask], answer=answer) for number in range(5_000)]
    calls += [LoggedCall(record_ids=[f"b{number:05}"], prompt=[ask, answer, more], answer=answer) for number in range(5_000)]
    found = chains(calls)
    assert len(found) == 5_000 and all(len(chain.calls) == 2 for chain in found)
    assert num_looks < 10 * 4 * len(calls)
    assert attempt_of(found[0]).num_sampled_turns == 2


def test_the_root_is_what_every_prompt_of_an_attempt_begins_with() -> None:
    short, middle, long = (call["request"]["messages"] for call in conversation("a", "b", "c"))
    assert root_of(short) == root_of(middle) == root_of(long)
    greeted = [SYSTEM, said("Hello, how can I help?"), ASK]
    assert root_of(greeted) == root_of([*greeted, said("a"), told("b")])
    assert len({root_of(turns) for turns in (short, greeted, [ASK], [SYSTEM, told("x")])}) == 4
    assert root_of([{"role": "developer", "content": " Mend the program.\n"}, ASK]) == root_of([SYSTEM, ASK])
