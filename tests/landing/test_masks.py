"""Masks: what is volatile is one word, everything else counts, and what was masked stays so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.ids import Identity
from pipelines.landing.format import merged
from pipelines.landing.masks import STOCK, Masks, pattern_of
from pipelines.landing.naming import Naming, masked_id, name_in
from pipelines.landing.spelling import turn_id

IDENTITY = Identity(b"identity of the tests")
UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("mask", "text", "masked"),
    [
        ("times", "It is 2026-11-20T12:00:01.5Z.", "It is <time>."),
        ("times", "on 2026-11-20 12:00 UTC, 9:05 pm, 2026/1/2 and 20.11.2026", "on <time>, <time>, <time> and <time>"),
        ("times", "Today is Friday, 20 November 2026; or Nov 3, 2026 at 09:05", "Today is <time>; or <time>"),
        ("times", "version 1.2.3 of 10.0.0.1, may 5 people", "version 1.2.3 of 10.0.0.1, may 5 people"),
        ("uuids", f"case {UUID}, {UUID.upper()}", "case <uuid>, <uuid>"),
        ("paths", "read /tmp/a1/b.txt and '~/x' or C:\\Users\\me\\f.txt", "read <path> and '<path>' or <path>"),
        ("paths", "https://x.y/a/b, and/or, /help, 1/2", "https://x.y/a/b, and/or, /help, 1/2"),
        ("hex", "commit 1a2b3c4d at 0xFF, deadbeef, 12345678", "commit <hex> at <hex>, deadbeef, 12345678"),
        ("numbers", "order 17 of 1,204.5", "order <number> of <number>"),
        ("/Case #[0-9]+/", "Case #17: help", "<volatile>: help"),
        ("/Case #([0-9]+)/", "Case #17: help", "Case #<volatile>: help"),
    ],
)
def test_what_is_volatile_is_masked_and_nothing_else(mask: str, text: str, masked: str) -> None:
    assert Masks([mask]).text(text) == masked


PIECES = st.sampled_from(
    [
        *("2026-11-20", "T12:00:01Z", "12:30", " ", "/", "a", "/tmp/x", "~", ":", UUID, "-", "0x1f", "1a2b3c4d5e", "17", "."),
        *("<time>", "<", ">", "volatile", "\ud800", "\ufdd0", "ä", "\n", "Case #", "Friday, ", "20 November ", "\\", "C:"),
    ]
)
OWN = ("/a/", "/volatile|time/", "/Case #([0-9]*)/", "/[^ ]+x/")


@given(
    text=st.lists(PIECES | st.text(max_size=3), max_size=14).map("".join),
    names=st.sets(st.sampled_from([*STOCK, *OWN]), min_size=1),
)
def test_masking_twice_is_masking_once(text: str, names: set[str]) -> None:
    masks = Masks(sorted(names))
    assert masks.text(masks.text(text)) == masks.text(text)


@given(names=st.permutations([*STOCK, *OWN]))
def test_the_order_of_masks_in_the_settings_does_not_matter(names: list[str]) -> None:
    assert Masks(names).hash == Masks([*names, names[0]]).hash == Masks([*STOCK, *OWN]).hash
    text = f"2026-11-20 /tmp/{UUID}/x Case #17"
    assert Masks(names).text(text) == Masks([*STOCK, *OWN]).text(text)


@pytest.mark.parametrize(
    ("name", "said"), [("time", "no mask"), ("/(/", "no RE2 pattern"), ("/a*/", "empty text"), ("/(a)(b)/", "2 groups")]
)
def test_a_mask_that_cannot_be_used_says_why(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pattern_of(name)


def test_a_turn_that_says_nothing_volatile_keeps_its_id() -> None:
    masks = Masks(["times"])
    turn = {"role": "user", "content": "Order 17, please."}
    assert masked_id(IDENTITY, masks, turn, turn_id(IDENTITY, turn)) == turn_id(IDENTITY, turn)


def test_parts_and_arguments_are_masked_and_images_are_not() -> None:
    masks = Masks(["times"])
    image = {"type": "image_url", "image_url": {"url": "data:12:30"}}

    def turn(time: str) -> dict:
        call = {"id": time, "function": {"name": "look", "arguments": f'{{"at": ["{time}"]}}'}}
        return {"role": "user", "content": [{"type": "text", "text": f"at {time}"}, image], "tool_calls": [call]}

    assert masked_id(IDENTITY, masks, turn("12:30"), "a") == masked_id(IDENTITY, masks, turn("9:15"), "b")
    assert masks.turn(turn("12:30"))["content"][1] == image


def test_a_turn_with_a_token_is_compared_as_it_was() -> None:
    turn = {"role": "user", "content": "at 12:30 mail [redacted:email:0123456789ab]"}
    assert masked_id(IDENTITY, Masks(["times"]), turn, "its own") == "its own"


def test_pieces_of_one_message_are_masked_together() -> None:
    naming = Naming(Masks(["times"]))

    def message(time: str) -> dict:
        turns = [{"role": "user", "content": "now:"}, {"role": "user", "content": time}]
        ids = [turn_id(IDENTITY, turn) for turn in turns]
        masked = naming.masked_ids(IDENTITY, turns, ids, None)
        assert masked is not None
        return merged([{**turn, "id": said, "masked_id": other} for turn, said, other in zip(turns, ids, masked, strict=True)])

    assert message("12:30")["masked_id"] == message("9:15")["masked_id"]
    assert message("12:30")["id"] != message("9:15")["id"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.a.ticket", "t-1"),
        ("$.n", "17"),
        ("$.f", "1.5"),
        ("$.big", "36893488147419103232"),
        ("$.yes", None),
        ("$.empty", None),
        ("$.missing", None),
        ("$.tags[?@.key == 'task'].value", "t-2"),
        ("$.a", None),
        ("$.a.*", "t-1"),
    ],
)
def test_the_first_text_or_number_names(path: str, name: str | None) -> None:
    value = {"a": {"list": [], "ticket": "t-1"}, "n": 17, "f": 1.5, "big": 2**65, "yes": True, "empty": ""}
    assert name_in({**value, "tags": [{"key": "task", "value": "t-2"}]}, path) == name
