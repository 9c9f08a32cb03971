"""I14 by what trained: an answer trains once, whatever trajectory holds it when a batch is drawn up."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pipelines import batches, groups, invariants, trajectories
from pipelines.doctor import digest
from pipelines.landing import recorder, registry
from pipelines.landing.format import Bundle, Piece, SourceRecord, Spelled, StoredRecord, uniform
from pipelines.landing.recorder import Recorder
from pipelines.landing.stitching import attempt_of, chains
from pipelines.replay import replay
from pipelines.rewards.score import score
from pipelines.schemas import CONSUMED, DUPLICATES, GROUPS, LANES, TRAJECTORIES
from pipelines.workspace import Workspace
from tests.batches.answers import aside, deliver, night, once, prepare, said, tokens, trained
from tests.batches.test_freeze import checkpoint
from tests.deliver import rows_of
from tests.replay.test_replay import use

FIRST, SECOND, THIRD = "2026-11-20", "2026-11-21", "2026-11-22"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return prepare(tmp_path / "workspace")


def reasons(workspace: Workspace, day: str) -> dict[tuple[int, ...], str]:
    """The lane's reason by the first answer of each attempt."""
    first = {row["trajectory_id"]: json.loads(row["calls"]) for row in rows_of(workspace, TRAJECTORIES.name)}
    lanes = [row for row in rows_of(workspace, LANES.name) if row["night"] == day]
    return {tuple(calls[0]["token_ids"]): row["lane_reason"] for row in lanes if (calls := first[row["trajectory_id"]])}


def test_a_longer_chain_of_the_same_attempt_gives_what_trained_another_id(workspace: Workspace) -> None:
    deliver(workspace, [said("a", "a0", "good"), said("b", "b0")], "first")
    night(workspace, FIRST)
    assert trained(workspace) == once("a0", "b0")
    ids = {row["trajectory_id"] for row in rows_of(workspace, TRAJECTORIES.name)}
    begun = aside(said("a", "a1", "bad", number=1))
    deliver(workspace, [begun, said("a", "a2", "good", number=2, after=begun), said("c", "c0")], "second")
    assert len({row["trajectory_id"] for row in rows_of(workspace, TRAJECTORIES.name)} - ids) == 2  # a0 by itself, and c
    night(workspace, SECOND)
    assert trained(workspace) == once("a0", "b0")
    assert reasons(workspace, SECOND)[tuple(tokens("a0"))] == "consumed"
    # the sibling that waits is nobody's loss: it trains beside the next one
    deliver(workspace, [said("d", "d0", "good")], "third")
    night(workspace, THIRD)
    assert trained(workspace) == once("a0", "b0", "c0", "d0")
    assert not invariants.trained_once(workspace).broken


def test_an_attempt_that_trained_unfinished_is_consumed_as_a_whole(workspace: Workspace) -> None:
    """Also where its day is rebuilt, and where what it goes on with comes late."""
    first = said("a", "a0", "good")
    deliver(workspace, [first, said("b", "b0")], "first")
    night(workspace, FIRST)
    deliver(workspace, [said("a", "a1", "good", number=1, day=1, after=first), said("c", "c0"), said("d", "d0", "good")], "late")
    for day in (SECOND, THIRD):
        trajectories.build(workspace, [FIRST, SECOND])
        night(workspace, day)
        night(workspace, FIRST)
    assert trained(workspace) == once("a0", "b0", "c0", "d0")
    assert not invariants.trained_once(workspace).broken


class Elsewhere(Recorder):
    """A parser of tomorrow, to which every call is an attempt of its own."""

    parser_version = Recorder.parser_version + 1

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        for piece in super().split(path, start, line):
            if isinstance(piece, SourceRecord):
                held = {field.name: getattr(piece, field.name) for field in dataclasses.fields(SourceRecord)}
                piece = SourceRecord(**{**held, "bundle_ref": f"call:{piece.vendor_id}"})
            yield piece


def test_a_replay_that_places_records_in_other_bundles(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first = said("a", "a0", "good")
    deliver(workspace, [first, said("a", "a1", "good", number=1, after=first), said("b", "b0")], "first")
    night(workspace, FIRST)
    before = {row["trajectory_id"] for row in rows_of(workspace, TRAJECTORIES.name)}
    use(monkeypatch, Elsewhere())
    replay(workspace, apply=True)
    after = {row["trajectory_id"] for row in rows_of(workspace, TRAJECTORIES.name)}
    assert len(after) == 3 and not after & before
    deliver(workspace, [said("c", "c0")], "second")
    night(workspace, SECOND)
    assert trained(workspace) == once("a0", "a1", "b0")
    assert sorted(reasons(workspace, SECOND).values()) == ["consumed", "consumed", "consumed", "no_siblings"]
    assert groups.seal(workspace, THIRD, judged=True).waiting == 1


def forked() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """An attempt, and one that was forked from it later with its first answer in it."""
    original = said("original", "x", "good")
    copied = said("fork", "x", "good", day=0, number=5)
    return [original], [copied, said("fork", "y", "good", number=6, after=copied)]


def test_an_earlier_log_that_owns_the_answers_arrives_when_its_copy_has_trained(workspace: Workspace) -> None:
    original, fork = forked()
    deliver(workspace, [*fork, said("b", "b0")], "first")
    night(workspace, FIRST)
    assert trained(workspace) == once("x", "y", "b0")
    deliver(workspace, [*original, said("c", "c0")], "second")
    rows = {row["num_turns"]: row for row in rows_of(workspace, TRAJECTORIES.name) if "good" in row["turns"]}
    assert len(rows[5]["copied_call_ids"]) == 1  # it is another's now
    night(workspace, SECOND)
    assert trained(workspace) == once("x", "y", "b0")
    assert reasons(workspace, SECOND)[tuple(tokens("x"))] == "consumed"


def test_what_a_fork_adds_trains_although_what_it_copied_did(workspace: Workspace) -> None:
    original, fork = forked()
    deliver(workspace, [*original, said("b", "b0")], "first")
    night(workspace, FIRST)
    deliver(workspace, [*fork, said("c", "c0")], "second")
    night(workspace, SECOND)
    assert trained(workspace) == once("x", "b0", "y", "c0")


def test_batches_of_an_older_nightshift_are_known_by_their_members_of_today(workspace: Workspace) -> None:
    _, fork = forked()
    deliver(workspace, [*fork, said("b", "b0")], "first")
    night(workspace, FIRST)
    rows = workspace.lake.read(CONSUMED.name)
    shutil.rmtree(Path(workspace.lake.uri(CONSUMED.name)))
    nothing = pa.nulls(rows.num_rows, pa.list_(pa.string()))
    workspace.lake.append(CONSUMED.name, rows.set_column(rows.schema.get_field_index("names"), "names", nothing))
    deliver(workspace, [said("earlier", "y", "good"), said("c", "c0")], "second")
    night(workspace, SECOND)
    assert trained(workspace) == once("x", "y", "b0")
    assert not invariants.trained_once(workspace).broken


def test_a_call_that_was_written_again_stands_for_what_trained(workspace: Workspace) -> None:
    """Its line is another record, under an id that says nothing; a longer chain takes the attempt's name besides."""
    line = {**said("a", "a0", "good"), "call_id": "call-1"}
    deliver(workspace, [line, said("b", "b0")], "first")
    night(workspace, FIRST)
    begun = aside(said("a", "a1", "bad", number=1))
    grown = {**line, "ended_at": "2026-11-20T12:00:30+00:00"}
    deliver(workspace, [grown, begun, said("a", "a2", "good", number=2, after=begun), said("c", "c0")], "second")
    (older,) = rows_of(workspace, DUPLICATES.name)
    holder = {row["trajectory_id"]: row for row in rows_of(workspace, TRAJECTORIES.name)}[older["trajectory_id"]]
    assert (older["kind"], holder["num_sampled_turns"]) == ("superseded", 1)
    night(workspace, SECOND)
    assert trained(workspace) == once("a0", "b0")


class Choices(Recorder):
    """A recorder whose calls hold several answers each, in `choices`: attempts side by side."""

    def spell(self, value: Any) -> Spelled:
        spelled = super().spell(value)
        others = [uniform(choice["message"], call=None) for choice in value.get("choices", ())]
        return dataclasses.replace(spelled, turns=[*spelled.turns, *others])

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        calls = []
        for record in records:
            choices = record.value.get("choices", ())
            turns = record.spelled.turns
            first = recorder._call(
                dataclasses.replace(record, spelled=dataclasses.replace(record.spelled, turns=turns[: len(turns) - len(choices)]))
            )
            calls.append(first)
            for number, choice in enumerate(choices):
                answer = turns[len(turns) - len(choices) + number]
                entry = {**first.entry, "token_ids": choice["token_ids"]}
                calls.append(dataclasses.replace(first, answer=answer, choice=number + 1, entry=entry))
        facts = {"harness": "sums", "task_id": records[0].value["task_id"], "policy_version": "agent@0", "model": "toy"}
        return Bundle(attempts=[attempt_of(chain, first_is_whole=True, **facts) for chain in chains(calls)])


def chosen(attempt: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """One call with several answers."""
    others = [
        {"message": {"role": "assistant", "content": text}, "token_ids": tokens(name)}
        for name, text in zip(names[1:], texts[1:], strict=True)
    ]
    return {**said(attempt, names[0], texts[0]), "choices": others}


def test_choices_of_one_answer_train_once_each_and_none_stands_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of two, so that the choices train in different ones; two of them came out alike."""
    use(monkeypatch, Choices())
    workspace = prepare(tmp_path / "workspace", size=2)
    names = ("n0", "n1", "n2", "n3", "n4")
    deliver(workspace, [chosen("a", names, ("good", "bad", "bad", "good", "good it is"))], "first")
    rows = rows_of(workspace, TRAJECTORIES.name)
    shared = [name for row in rows for name in row["shared_answers"]]
    assert len(rows) == 5 and len(shared) == len(set(shared)) == 10  # by the record and by the claim
    night(workspace, FIRST)
    ids = {row["trajectory_id"]: row for row in rows}
    (waiting,) = ids.keys() - {row["trajectory_id"] for row in rows_of(workspace, GROUPS.name)}
    assert trained(workspace)
    (answer,) = (call["token_ids"] for call in json.loads(ids[waiting]["calls"]))
    passed = json.loads(ids[waiting]["turns"])[-1]["content"].startswith("good")
    deliver(workspace, [said("late", "late", "bad" if passed else "good")], "second")
    night(workspace, SECOND)
    found = trained(workspace)
    assert (found[tuple(answer)], found[tuple(tokens("late"))], max(found.values())) == (1, 1, 1)
    assert "consumed" not in reasons(workspace, SECOND).values()
    assert not invariants.trained_once(workspace).broken


def test_a_choice_that_trained_and_goes_on_is_consumed_and_its_sibling_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Choices())
    workspace = prepare(tmp_path / "workspace")
    call = chosen("a", ("n0", "n1"), ("good", "bad"))
    deliver(workspace, [call], "first")
    night(workspace, FIRST)
    assert trained(workspace) == once("n0", "n1")
    named = {row["trajectory_id"]: row["shared_answers"] for row in rows_of(workspace, TRAJECTORIES.name)}
    deliver(workspace, [said("a", "more", "bad", number=1, after=call)], "second")
    after = {row["trajectory_id"]: row["shared_answers"] for row in rows_of(workspace, TRAJECTORIES.name)}
    assert after.keys() == named.keys()
    assert all(set(after[trajectory_id]) >= set(names) for trajectory_id, names in named.items())
    assert sum(len(names) for names in after.values()) > sum(len(names) for names in named.values())


def test_again_is_marked_and_breaks_nothing(workspace: Workspace) -> None:
    deliver(workspace, [said("a", "a0", "good"), said("b", "b0")], "first")
    first = night(workspace, FIRST)
    checkpoint(workspace, first.batch_ids)
    assert night(workspace, FIRST, again=True).groups == 1
    rows = workspace.lake.read(CONSUMED.name).sort_by("again").to_pylist()
    assert [row["again"] for row in rows] == [False, True]
    assert rows[0]["names"] == rows[1]["names"] and len(rows[0]["names"]) == 4
    assert trained(workspace, again=True) == once("a0", "b0") + once("a0", "b0")
    assert not invariants.trained_once(workspace).broken


def test_of_two_freezers_with_one_answer_under_two_groups_the_second_is_overtaken(workspace: Workspace) -> None:
    deliver(workspace, [said("a", "a0", "good"), said("b", "b0")], "first")
    groups.seal(workspace, FIRST, judged=True)
    score(workspace, FIRST)
    (draft,) = batches._drafts(workspace, FIRST, {}, again=False)
    (names,), (window,) = draft.names.values(), draft.windows.values()
    of_other = {"generations": {"grp_other": 0}, "windows": {"grp_other": window}, "names": {"grp_other": names[:1]}}
    other = dataclasses.replace(draft, batch_id="other", **of_other)
    assert batches._consume(workspace, SECOND, other)
    with pytest.raises(batches._OvertakenError):
        batches._consume(workspace, FIRST, draft)
    assert batches.freeze(workspace, FIRST).groups == 0
    assert set(reasons(workspace, FIRST).values()) == {"consumed", "no_siblings"}


def test_one_answer_told_twice_tonight_trains_once() -> None:
    rows = [
        {"trajectory_id": "a", "names": ["r1", "c"], "shared_answers": None},
        {"trajectory_id": "b", "names": ["r2", "c"], "shared_answers": None},
        {"trajectory_id": "c", "names": ["r3"], "shared_answers": ["r4+x"]},
        {"trajectory_id": "d", "names": ["r5"], "shared_answers": ["r4+x#1"]},
    ]
    assert [row["trajectory_id"] for row in batches._apart(rows, set())] == ["a", "c", "d"]
    assert [row["trajectory_id"] for row in batches._apart(rows, {"r1", "r4+x"})] == ["b", "d"]


def pool() -> list[dict[str, Any]]:
    """Calls of five attempts: chains side by side, an answer that lies in two logs, calls that were written again."""
    a0, b0 = said("a", "a0", "good"), said("b", "b0")
    a1, b1 = aside(said("a", "a1", "bad", number=1)), aside(said("b", "b1", "bad", number=2))
    copied = said("fork", "a0", "good", number=7)
    return [
        a0,
        a1,
        said("a", "a2", "good", number=2, after=a1),
        said("a", "a3", "good", number=3, after=a0),
        b0,
        {**b0, "ended_at": "2026-11-20T12:00:40+00:00"},
        b1,
        said("b", "b2", "good", number=3, after=b1),
        copied,
        said("fork", "f1", "good", number=8, after=copied),
        said("c", "c0", "good"),
        said("d", "d0", day=1),
    ]


deliveries = st.tuples(st.just("deliver"), st.sets(st.integers(0, len(pool()) - 1), min_size=1, max_size=4))
others = st.sampled_from([("night", set[int]()), ("rebuild", set[int]()), ("replay", set[int]()), ("again", set[int]())])


def play(workspace: Workspace, history: list[tuple[tuple[str, set[int]], tuple[str, set[int]]]]) -> None:
    lines, version = pool(), Recorder.parser_version
    for number, ((_, some), (step, _)) in enumerate(history):
        deliver(workspace, [lines[place] for place in sorted(some)], f"log {number}")
        if step == "rebuild":
            trajectories.build(workspace, [FIRST, SECOND])
        elif step == "replay":
            version += 1
            parser = type("Parser", (Elsewhere if number % 2 else Recorder,), {"parser_version": version})()
            # a constant to everybody else: the test stands for a release that brings another parser
            registry.FORMATS = tuple(parser if known.name == "recorder" else known for known in registry.FORMATS)  # type: ignore[misc]
            replay(workspace, apply=True)
        night(workspace, f"2026-11-{20 + number}", again=step == "again")


# without shrinking: a history costs seconds, and a failing one is short enough to read
@settings(max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(deliveries, others), min_size=3, max_size=4))
@example(
    [
        (("deliver", {0, 4, 8, 9}), ("night", set())),
        (("deliver", {1, 2, 10}), ("replay", set())),
        (("deliver", {5, 6, 11}), ("again", set())),
    ]
)
def test_whatever_comes_in_whatever_order_no_answer_is_in_two_batches(
    history: list[tuple[tuple[str, set[int]], tuple[str, set[int]]]],
) -> None:
    formats = registry.FORMATS
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder) / "workspace")
        try:
            play(workspace, history)
            night(workspace, "2026-11-29")
            held = digest(workspace)[CONSUMED.name]
            night(workspace, "2026-11-29")
        finally:
            registry.FORMATS = formats  # type: ignore[misc]
        assert digest(workspace)[CONSUMED.name] == held
        assert max(trained(workspace).values(), default=1) == 1
        assert not invariants.trained_once(workspace).broken
