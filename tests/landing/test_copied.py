"""By which ids copies of an answer are known, and what is left of an attempt whose answers another one owns."""

from __future__ import annotations

from typing import Any

from pipelines.landing.codex_cli import CodexCli
from pipelines.landing.copied import Claims, claims_of, without_copied
from pipelines.landing.format import Attempt, CallUsage, call_entry
from pipelines.landing.litellm import LiteLLM
from pipelines.landing.tau_bench import TauBench

HARNESS, GATEWAY, RESULTS = CodexCli(), LiteLLM(), TauBench()
USES = "call_fHCjJqt9Pysde6vcJcvbXGBx"
SERVED = "chatcmpl-ASYMbACebDoWcuraMEWQhU48q4dAp"


def answer(number: int, tool_call: str | None = None) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": "x", "sampled": True, "call": number, "id": f"said{number}"}
    function = {"name": "Read", "arguments": "{}"}
    return {**turn, "tool_calls": [{"id": tool_call, "type": "function", "function": function}]} if tool_call else turn


def attempt(*turns: dict[str, Any], calls: list[str | None]) -> Attempt:
    asked = {"role": "user", "content": "do", "sampled": False, "call": None, "id": "asked"}
    usages = [CallUsage(model=f"m{number}", num_reply_tokens=10**number) for number in range(len(calls))]
    entries = [call_entry(call_id=call_id) for call_id in calls]
    return Attempt(record_ids=["r"], turns=[asked, *turns], calls=entries, usages=usages, num_reply_tokens=111, model=None)


def test_answers_are_named_by_their_own_id_and_in_harness_logs_by_their_tool_calls() -> None:
    one = attempt(answer(0, USES), answer(1), answer(2), calls=[None, None, SERVED])
    assert claims_of(HARNESS, one).by_turn == {1: [f"{USES}+said0"], 2: [f"{USES}+said1"], 3: [f"{SERVED}+said2"]}
    assert claims_of(GATEWAY, one).by_turn == {3: [f"{SERVED}+said2"]}
    assert claims_of(RESULTS, one).by_turn == {}


def test_counted_ids_and_constants_are_no_names() -> None:
    counted = attempt(*(answer(number, f"functions.Read:{number}") for number in range(2)), calls=["chatcmpl-417", "call_0"])
    assert claims_of(HARNESS, counted).ids == []
    constant = attempt(answer(0, USES), answer(1, USES), calls=[SERVED, SERVED])
    assert claims_of(HARNESS, constant).ids == []


def test_an_id_that_stands_for_another_answer_names_no_copy() -> None:
    """A counter that was padded to sixteen digits looks random."""
    padded = "chatcmpl-0000000000000001"
    first, second = attempt(answer(0), calls=[padded]), attempt({**answer(0), "id": "said otherwise"}, calls=[padded])
    assert claims_of(GATEWAY, first).ids and not set(claims_of(GATEWAY, first).ids) & set(claims_of(GATEWAY, second).ids)


def test_the_turns_of_one_answer_share_its_id() -> None:
    one = attempt(answer(0), answer(0), calls=[SERVED])
    assert claims_of(GATEWAY, one).by_turn == {1: [f"{SERVED}+said0"], 2: [f"{SERVED}+said0"]}


def test_an_unnamed_answer_before_a_copied_one_was_copied_with_it() -> None:
    one = attempt(answer(0), answer(1), answer(2), calls=[None, SERVED, None])
    left, parent = without_copied(one, claims_of(GATEWAY, one), {f"{SERVED}+said1": "earlier"})
    assert parent == "earlier"
    assert [turn["sampled"] for turn in left.turns] == [False, False, False, True]
    assert left.turns[3]["call"] == 0
    assert (left.link, left.num_shared_turns, left.model, left.num_reply_tokens) == ("continuation", 3, "m2", 100)
    assert [call["call_id"] for call in left.calls] == [None]


def test_usage_that_no_call_tells_is_unknown_where_some_answers_are_anothers() -> None:
    one = attempt(answer(0), answer(1), calls=[SERVED, None])
    bare = Attempt(record_ids=["r"], turns=one.turns, calls=one.calls, num_reply_tokens=111)
    left, _ = without_copied(bare, claims_of(GATEWAY, bare), {f"{SERVED}+said0": "earlier"})
    assert left.num_reply_tokens is None
    assert without_copied(bare, Claims({}), {}) == (bare, None)
