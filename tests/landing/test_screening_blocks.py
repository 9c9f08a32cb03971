"""What is screened in blocks is what would be called clean one by one, or less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.landing.decoding import decode
from pipelines.landing.redaction import Redactor
from pipelines.landing.redaction_rules import stock
from pipelines.landing.screening import Screen
from pipelines.landing.screening_blocks import BlockScreen
from tests.landing.lines import call
from tests.landing.test_screening import KEY, SAID, values

BLOCKS = BlockScreen(Screen(stock()))


def text(value: Any, *, ascii: bool = False) -> bytes:
    return decode(json.dumps(value, ensure_ascii=ascii).encode())[1]


def check(*found: Any, ascii: bool = False) -> list[bool]:
    clean = BLOCKS.clean([text(value, ascii=ascii) for value in found])
    for value, fine in zip(found, clean, strict=True):
        assert not fine or Redactor(KEY).value(value) == value, value
    return clean


def test_each_text_is_judged_by_itself() -> None:
    secret = call(2, request={"messages": [{"role": "user", "content": "mail me@example.com"}]})
    unended = call(3, request={"messages": [{"role": "user", "content": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE"}]})
    telling = call(4, password="hunter2hunter2")
    header = {"a": [["Authorization", "hunter2hunter2"]]}
    fine = [call(number, text="two\nlines\tand a/b") for number in range(5)]
    assert check(*fine, secret, *fine) == [*[True] * 5, False, *[True] * 5]
    assert check(unended, *fine, secret) == [False, *[True] * 5, False]
    assert check(*fine, telling, fine[0], header) == [*[True] * 5, False, True, False]
    assert check(fine[0], ["plain"], {"": 1}, [], "", ":", {":": ":"}) == [True] * 7


def test_more_matches_than_are_looked_for_in_a_block() -> None:
    said = [{"a": f"{number}@example.com"} for number in range(300)]
    assert check(*said, {"a": "plain"}, *said, {"a": "plain"}) == [*[False] * 300, True, *[False] * 300, True]


@pytest.mark.parametrize("said", SAID)
def test_no_secret_is_called_clean_among_others(said: str) -> None:
    plain: dict[str, Any] = {"a": "plain"}
    for about in (said, f"see\n{said}", f'"{said}"', f"\t{said}\\", json.dumps({"b": said})):
        check(plain, {"a": about}, plain, [about], about, {"a": [{"b": ["x", about]}]}, plain, plain, plain, plain, plain)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, min_size=2, max_size=8), st.booleans())
def test_what_is_called_clean_is_left_as_it_is(found: list[Any], ascii: bool) -> None:
    plain: list[Any] = [{"a": "plain"}] * len(found)  # so that most texts of the block are judged together
    check(*found, *plain, ascii=ascii)
