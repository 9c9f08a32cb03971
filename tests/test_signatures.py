"""Request signatures: equal for equal words, near for near texts, and a function of the text alone."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import signatures as module
from pipelines.groups.near import similarity
from pipelines.signatures import Making, read, request_text, signatures
from tests.requests import edited, request

EVERY = Making(min_words=1)


def near(one: str, other: str, making: Making = EVERY) -> float:
    table, places = read(pa.array(signatures([one, other], making), pa.binary()), making)
    assert list(places) == [0, 1]
    return float(similarity(table[:1], table[1:])[0])


@given(st.lists(st.text(max_size=80) | st.none(), max_size=12), st.randoms())
def test_a_signature_is_a_function_of_its_text_alone(texts: list[str | None], draws: random.Random) -> None:
    together = signatures(texts, EVERY)
    assert together == [signatures([text], EVERY)[0] for text in texts]
    order = list(range(len(texts)))
    draws.shuffle(order)
    assert signatures([texts[place] for place in order], EVERY) == [together[place] for place in order]


@given(st.lists(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True), min_size=1, max_size=60), st.randoms())
def test_case_white_space_and_signs_change_nothing(words: list[str], draws: random.Random) -> None:
    plain = " ".join(words)
    dressed = "".join(word.upper() + draws.choice([" ", "\n\n", ", ", " – ", "… ", "\t«"]) for word in words)
    assert signatures([plain], EVERY) == signatures([dressed], EVERY) != [None]
    assert near(plain, dressed) == 1.0


def test_many_texts_go_through_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [request(number, words=30) for number in range(40)]
    whole = signatures(texts, EVERY)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 2)
    assert signatures(texts, EVERY) == whole
    assert len(set(whole)) == 40


def test_two_words_of_a_long_issue_are_a_near_copy_and_a_number_of_a_short_ticket_is_none() -> None:
    issue = request(1, words=200)
    assert near(issue, edited(issue, 2)) >= 0.8
    for ticket, other in (
        (
            "My order 48213 never arrived. My customer number is 51177.",
            "My order 20931 never arrived. My customer number is 51177.",
        ),
        ("For order 48213 I got a letter with the reference 77120.", "For order 48213 I got a letter with the reference 77121."),
        (request(2, words=40) + " 1", request(2, words=40) + " 2"),  # at the end, where it counts as much as in the middle
    ):
        assert near(ticket, other) < 0.8


def test_the_estimate_is_the_similarity_of_the_shingles() -> None:
    base = request(3, words=300)
    for number in (1, 3, 8, 20):
        words, changed = base.lower().split(), edited(base, number).lower().split()

        def shingles(of: list[str]) -> set[tuple[str, ...]]:
            round_the_end = of + of[:4]
            return {tuple(round_the_end[place : place + 5]) for place in range(len(of))}

        one, other = shingles(words), shingles(changed)
        true = len(one & other) / len(one | other)
        many = Making(permutations=1024, min_words=1)
        assert near(base, edited(base, number), many) == pytest.approx(true, abs=0.05)


def test_writing_without_spaces_is_compared_by_character() -> None:
    text = (
        "注文した商品がまだ届いていません。追跡番号を確認しましたが、三日前から動いていないようです。至急ご対応をお願いいたします。"
        * 2
    )
    assert near(text, text.replace("三", "五", 1)) >= 0.8
    assert near(text, "返品の手続きについて教えてください。" * 6) < 0.2


def test_what_says_too_little_has_no_signature() -> None:
    making = Making(min_words=5)
    assert signatures(["one two three four", "…!?", "", None], making) == [None] * 4
    assert signatures(["one two three four five"], making) != [None]


def test_of_a_very_long_request_the_beginning_counts() -> None:
    text = request(4, words=200)
    long = text + " x" * module.MAX_CHARACTERS
    assert signatures([long], EVERY) == signatures([long + " y" * 1000], EVERY)
    blob = "a" * (3 * module.MAX_CHARACTERS)
    assert signatures([blob], EVERY) != [None]


def test_signatures_that_were_made_in_another_way_are_left_out() -> None:
    text = request(5, words=50)
    ways = [Making(), Making(permutations=64), Making(words=3), Making(permutations=256, words=3)]
    stored = pa.array([signatures([text], way)[0] for way in ways] + [None, b"", b"abc"], pa.binary())
    for place, way in enumerate(ways):
        table, places = read(stored, way)
        assert list(places) == [place] and table.shape == (1, way.permutations)
    assert Making(min_words=3).prefix == Making(min_words=9).prefix
    assert read(pa.chunked_array([], pa.binary()), Making())[0].shape == (0, 128)


def test_a_slice_of_a_column_is_read_from_its_own_start() -> None:
    made = signatures([request(number, words=20) for number in range(4)], Making())
    table, places = read(pa.array(made, pa.binary()).slice(2), Making())
    assert list(places) == [0, 1]
    assert np.array_equal(table, read(pa.array(made, pa.binary()), Making())[0][2:])


def test_a_request_is_what_stands_behind_the_last_answer() -> None:
    turns = [
        {"role": "user", "content": "an example"},
        {"role": "assistant", "content": "its answer"},
        {"role": "user", "content": [{"type": "text", "text": "the issue"}, {"type": "image_url", "image_url": {}}]},
        {"role": "user", "content": "and more"},
    ]
    assert request_text(turns) == "the issue\nand more"
    assert request_text(turns[:2]) is None
    assert request_text([{"role": "user", "content": None}]) is None
    assert request_text([]) is None
