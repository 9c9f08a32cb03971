from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reasons import REWARD_REASONS
from pipelines.rewards.combine import Attempt, Reward, Rule, combine, smallest_gap
from trainer.contract import advantages

PASS = 1_000_000
scores = st.one_of(st.none(), st.integers(0, PASS), st.sampled_from([0, 1, 300_000, 999_999, PASS]))


@st.composite
def groups(draw: st.DrawFn) -> list[Attempt]:
    size = draw(st.integers(1, 9))
    return [
        Attempt(
            f"trj_{number}",
            draw(scores),
            draw(scores),
            verifier_failed=draw(st.booleans()),
            fault=draw(st.integers(0, 9)) == 0,
        )
        for number in range(size)
    ]


def rewarded(group: list[Attempt], rule: Rule = "tests_first", **more: bool) -> dict[str, Reward]:
    return {reward.trajectory_id: reward for reward in combine(group, rule, judge_weight=100_000, **more)}


@given(
    groups(),
    st.sampled_from(["tests_first", "tests_only"]),
    st.integers(0, PASS),
    st.booleans(),
    st.booleans(),
    st.integers(1, PASS),
)
def test_tests_outrank_the_judge(
    group: list[Attempt], rule: Rule, judge_weight: int, calibrated: bool, judge_failed: bool, pass_at: int
) -> None:
    """I5, and stronger: whatever the judge says, of two verdicts the lower one gets the lower reward."""
    rewards = combine(group, rule, judge_weight=judge_weight, calibrated=calibrated, judge_failed=judge_failed)
    kept = [(a, r.reward) for a, r in zip(group, rewards, strict=True) if r.reward is not None and r.rule != "judge_only"]
    for worse, low in kept:
        for better, high in kept:
            if worse.verifier_score is not None and better.verifier_score is not None:
                assert (worse.verifier_score < better.verifier_score) <= (low < high)
    found = advantages([reward for _, reward in kept])
    for (worse, _), low in zip(kept, found or [], strict=False):
        for (better, _), high in zip(kept, found or [], strict=False):
            if (worse.verifier_score or 0) < pass_at <= (better.verifier_score or 0):
                assert low < high


@given(groups(), st.sampled_from(["tests_first", "tests_only", "judge_only"]), st.booleans())
def test_an_uncalibrated_judge_changes_no_reward(group: list[Attempt], rule: Rule, judge_failed: bool) -> None:
    unheard = [Attempt(a.trajectory_id, a.verifier_score, None, a.verifier_failed, a.fault) for a in group]
    heard = combine(group, rule, judge_weight=100_000, judge_failed=judge_failed)
    assert heard == combine(unheard, rule, judge_weight=100_000, judge_failed=judge_failed)


@given(groups(), st.sampled_from(["tests_first", "tests_only", "judge_only"]), st.booleans(), st.booleans())
def test_a_failure_is_never_a_number(group: list[Attempt], rule: Rule, calibrated: bool, judge_failed: bool) -> None:
    """I11: a reward or a reason, never both, never neither; and no reward without the score that it stands on."""
    for attempt, reward in zip(
        group, combine(group, rule, judge_weight=100_000, calibrated=calibrated, judge_failed=judge_failed), strict=True
    ):
        assert (reward.reward is None) == (reward.reason in REWARD_REASONS)
        if attempt.fault:
            assert reward.reason == "harness_fault"
        if reward.reward is not None:
            assert (attempt.ruler_score if reward.rule == "judge_only" else attempt.verifier_score) is not None


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_siblings_does_not_matter(group: list[Attempt], random: object) -> None:
    shuffled = list(group)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands in a random.Random
    assert rewarded(group, calibrated=True) == rewarded(shuffled, calibrated=True)


def test_a_calibrated_judge_orders_what_the_tests_call_equal_within_a_tenth_of_the_gap() -> None:
    group = [
        Attempt("pass_liked", PASS, PASS),
        Attempt("pass_disliked", PASS, 0),
        Attempt("half", 500_000, 200_000),
        Attempt("fail_liked", 0, PASS),
    ]
    found = rewarded(group, calibrated=True)
    assert {name: reward.reward for name, reward in found.items()} == {
        "pass_liked": 1_050_000,
        "pass_disliked": 1_000_000,
        "half": 510_000,
        "fail_liked": 50_000,
    }


def test_a_pass_that_the_judge_dislikes_keeps_a_positive_advantage_among_passes_and_a_fail() -> None:
    group = [Attempt(f"liked_{n}", PASS, PASS) for n in range(6)] + [Attempt("disliked", PASS, 0), Attempt("fail", 0, PASS)]
    found = combine(group, "tests_first", judge_weight=PASS, calibrated=True)  # the configured weight is cut
    values = advantages([reward.reward or 0 for reward in found])
    assert values is not None
    assert values[6] == pytest.approx(0.11, abs=0.01)
    assert values[7] < -2


def test_equal_verdicts_stay_equal_whatever_the_judge_says() -> None:
    group = [Attempt("a", PASS, 900_000), Attempt("b", PASS, 100_000)]
    assert {reward.reward for reward in rewarded(group, calibrated=True).values()} == {PASS}


def test_where_one_was_not_judged_nobody_gets_a_bonus() -> None:
    group = [Attempt("a", PASS, PASS), Attempt("b", PASS, None), Attempt("c", 0, PASS)]
    assert [reward.reward for reward in rewarded(group, calibrated=True).values()] == [PASS, PASS, 0]


@pytest.mark.parametrize(
    ("group", "more", "reasons"),
    [
        (
            [Attempt("a", PASS), Attempt("b", None), Attempt("c", None, verifier_failed=True)],
            {},
            [None, "no_verdict", "verifier_failed"],
        ),
        ([Attempt("a", None, 5), Attempt("b", None, 7)], {}, ["no_score", "no_score"]),
        ([Attempt("a", None), Attempt("b", None)], {"judge_failed": True}, ["judge_failed", "judge_failed"]),
        ([Attempt("a", None, 5), Attempt("b", None, 7)], {"calibrated": True}, [None, None]),
        ([Attempt("a", PASS), Attempt("b", 0)], {"judge_failed": True}, [None, None]),
        (
            [Attempt("a", None, verifier_failed=True), Attempt("b", None, 5)],
            {"calibrated": True},
            ["verifier_failed", "no_score"],
        ),
        ([Attempt("a", None, fault=True), Attempt("b", 0)], {}, ["harness_fault", None]),
    ],
)
def test_why_there_is_no_reward(group: list[Attempt], more: dict[str, bool], reasons: list[str | None]) -> None:
    assert [reward.reason for reward in rewarded(group, **more).values()] == reasons


def test_a_reward_that_stands_on_the_judge_alone_says_so() -> None:
    group = [Attempt("a", None, 5), Attempt("b", None, 7)]
    assert {reward.rule for reward in rewarded(group, calibrated=True).values()} == {"judge_only"}
    tested = [Attempt("a", PASS, 5), Attempt("b", 0, 7)]
    assert [r.reward for r in combine(tested, "judge_only", judge_weight=0, calibrated=True)] == [5, 7]


def test_gap() -> None:
    assert smallest_gap([5, 5, 9, 12]) == 3
    assert smallest_gap([5, 5]) == smallest_gap([]) == 0
