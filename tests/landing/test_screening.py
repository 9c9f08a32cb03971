"""A record that is called clean is one that the walk leaves as it is."""

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
from tests.landing.lines import call
from tests.landing.test_redaction import AROUND, SECRETS

SCREEN = Screen(stock())
KEY = b"a key of sixteen"
SAID = [AROUND.get(rule, "{}").format(secret) for rule, secret in SECRETS.items()]
NAMES = [
    "a",
    "password",
    "api_key",
    "apiKey",
    "Authorization",
    "name",
    "value",
    "key",
    'x"password',
    "env",
    "pass\\word",
    "token ids",
]


def check(value: Any, *, ascii: bool = False) -> bool:
    found, text = decode(json.dumps(value, ensure_ascii=ascii).encode())
    redactor = Redactor(KEY)
    redacted = redactor.value(found)
    clean = SCREEN.is_clean(text)
    assert not clean or (redacted == found and not redactor.counts), text
    return clean


def test_ordinary_records_are_clean() -> None:
    assert check(call(1))
    assert check(call(1, request={"messages": [{"role": "user", "content": 'say "hello"\nand\tgo, {"path": "a/b"}'}]}))


def test_what_is_escaped_twice_or_named_beside_is_walked() -> None:
    assert not check({"a": "C:\\dir"})
    assert not check({"name": "x", "value": "y"})
    assert not check({"password": "hunter2hunter2"})
    assert not check({"a": json.dumps({"password": "hunter2hunter2"})})
    assert not check({"a": '{"password" : "hunter2hunter2"}'})
    assert not check({"a": [["Authorization", "hunter2hunter2"]]})


@pytest.mark.parametrize("said", SAID)
def test_no_secret_is_called_clean_wherever_it_stands(said: str) -> None:
    for text in (said, f"see\n{said}", f'"{said}"', f"\t{said}\\", json.dumps({"b": said}), json.dumps([f"x {said}"], indent=1)):
        for value in ({"a": text}, [text], {"a": [{"b": ["x", text]}]}, {"a": json.dumps({"b": text})}):
            assert not check(value) or Redactor(KEY).value(value) == value


words = st.sampled_from(
    [*SAID, "plain", "a b", "", "{", "\n", "\\", '"', "\u2028", "hunter2hunter2", '{"password": "hunter2hunter2"}']
)
texts = st.lists(words, max_size=3).map("".join)


values = st.recursive(
    texts | st.integers(0, 10**16) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | texts, inner, max_size=3)
        | inner.map(json.dumps)
        | inner.map(lambda value: json.dumps(value, indent=1))
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(values, st.booleans())
def test_what_is_called_clean_is_left_as_it_is(value: Any, ascii: bool) -> None:
    check(value, ascii=ascii)
