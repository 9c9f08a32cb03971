"""Values of which nobody promises the type."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.shapes import careful, checked, cost, count, counted, first, text, total, unpacked


@pytest.mark.parametrize("value", [None, -1, 1.5, True, "5", [], 1 << 31, 1 << 70])
def test_what_is_no_count(value: Any) -> None:
    assert count(value) is None


def test_numbers() -> None:
    assert (count(0), count(7)) == (0, 7)
    assert (counted("7"), counted(7.0), counted("x"), counted(-1), counted("9" * 30)) == (7, 7, None, None, None)
    assert (cost(0.25), cost(1), cost(-1), cost(True), cost("1")) == (0.25, 1.0, None, None, None)
    assert (total([1, 2]), total([1, None]), total([])) == (3, None, None)


def test_texts() -> None:
    assert (text("x"), text(""), text(5)) == ("x", None, None)
    assert first({"a": None, "b": 0}, "a", "b") == 0


@pytest.mark.parametrize(
    ("value", "held"),
    [('{"a": 1}', {"a": 1}), (' ["x"]', ["x"]), ('"{\\"a\\": 1}"', {"a": 1}), ('"x"', '"x"'), ("{broken", "{broken"), (5, 5)],
)
def test_packed_json(value: Any, held: Any) -> None:
    assert unpacked(value) == held


def test_a_record_of_another_shape_is_refused() -> None:
    assert checked({"a": 1}, a=int, b=(str, type(None))) == {"a": 1}
    for value in ([], {}, {"a": "x"}):
        with pytest.raises(BadPieceError):
            checked(value, a=int)
    with pytest.raises(BadPieceError, match="KeyError"):
        careful(lambda value: Facts(vendor_id=value["id"]))({})
