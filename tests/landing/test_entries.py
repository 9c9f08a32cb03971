"""Entries of a log as attempts: rows, trees, compactions."""

from __future__ import annotations

from typing import Any

from pipelines.landing.entries import ROOT, Entry, attempts_of
from pipelines.landing.format import Attempt


def entry(name: str, role: str = "user", **fields: Any) -> Entry:
    turns = [{"role": role, "content": name, "sampled": False, "call": None, "id": name}]
    return Entry(record_ids=[name], turns=turns, id=name, answers=role == "assistant", **fields)


def said(attempt: Attempt) -> str:
    """The names of its turns; those of sampled ones in capitals."""
    return " ".join(turn["content"].upper() if turn["sampled"] else turn["content"] for turn in attempt.turns)


def test_a_row_is_one_attempt_and_an_unknown_parent_is_the_entry_before() -> None:
    (attempt,) = attempts_of([entry("s", "system"), entry("a", parent="lost"), entry("b", "assistant", parent="lost")])
    assert (said(attempt), attempt.record_ids, attempt.ref) == ("s a B", ["s", "a", "b"], "")
    assert attempts_of([]) == []


def test_what_comes_later_renames_no_earlier_attempt() -> None:
    entries = [entry("a", parent=ROOT), entry("b", "assistant", parent="a"), entry("c", parent="b")]
    entries += [entry("d", "assistant", parent="a"), entry("e", parent="d"), entry("f", parent=ROOT)]
    found = attempts_of(entries)
    for length in range(1, len(entries) + 1):
        found = attempts_of(entries[:length])
        assert [attempt.ref for attempt in found] == ["", "/d", "/f"][: len(found)]
        assert sorted(record_id for attempt in found for record_id in attempt.record_ids) == sorted("abcdef"[:length])
    assert [said(attempt) for attempt in found] == ["a B c", "a D e", "f"]
    assert [(attempt.link, attempt.parent_ref, attempt.num_shared_turns) for attempt in found] == [
        (None, None, 0),
        ("branch", "", 1),
        ("branch", "", 0),
    ]


def test_a_compaction_keeps_the_system_prompt_and_what_it_names() -> None:
    entries = [
        entry("s", "system"),
        entry("a"),
        entry("b", "assistant"),
        entry("c"),
        entry("k", kept=["b", "c"]),
        entry("d", "assistant"),
    ]
    first, second = attempts_of(entries)
    assert (said(first), said(second)) == ("s a B c", "s k b c D")
    assert (second.link, second.parent_ref, second.record_ids) == ("compaction", "", ["k", "d"])
    entries[4].num_kept_first = 1
    branched = attempts_of([*entries, entry("e", "assistant", parent="k")])
    assert [said(attempt) for attempt in branched[1:]] == ["s b k c D", "s b k c E"]
    assert branched[2].link == "branch" and branched[2].num_shared_turns == 4


def test_a_log_that_begins_with_a_compaction_keeps_its_summary() -> None:
    (attempt,) = attempts_of([entry("k", kept=[]), entry("a", "assistant")])
    assert said(attempt) == "k A"


def test_copies_are_shared_and_not_sampled() -> None:
    entries = [
        entry("a", copied=True),
        entry("b", "assistant", copied=True, model="m-1"),
        entry("c"),
        entry("d", "assistant", model="m-2"),
    ]
    (attempt,) = attempts_of(entries)
    assert (said(attempt), attempt.link, attempt.num_shared_turns, attempt.model) == ("a b c D", "branch", 2, "m-2")
