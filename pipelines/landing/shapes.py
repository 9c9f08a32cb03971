"""Reading values of which only the format's own tools know whether they are what they should be.

Two kinds: `check`, `checked`, `careful` and `readable` refuse a record at landing; the others read one value off a record that was let through
and give None (or nothing) where it is of another type, so that what one tool left out costs that value and no record.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Spelled

LARGEST_COUNT = (1 << 31) - 1
"""What the lake's columns hold; no tool counts further."""


def check(holds: bool, detail: str) -> None:
    """BadPieceError with this detail where it does not hold."""
    if not holds:
        raise BadPieceError("wrong_shape", detail)


def readable(spell: Callable[[Any], Spelled], value: Any) -> Spelled:
    """What a value says, or BadPieceError where it cannot be spelled: what landing lets through, stage 2 can read."""
    try:
        spelled = spell(value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise BadPieceError("wrong_shape", f"its messages cannot be read: {type(problem).__name__}: {problem}"[:200]) from None
    check_turns(spelled.turns)
    return spelled


def check_turns(turns: Sequence[dict[str, Any]]) -> None:
    """BadPieceError where turns hold what the next stage does not take: whatever was logged, a text is a text."""
    for turn in turns:
        check(isinstance(turn["role"], str), "role of a message is no string")
        check(isinstance(turn["content"], str | list | None), "content of a message is neither text nor a list")
        for name in ("tool_call_id", "name", "reasoning"):
            check(isinstance(turn.get(name), str | None), f"{name} of a message is no string")
        for call in turn.get("tool_calls", ()):
            check(isinstance(call["id"], str | None), "id of a call is no string")
            check(isinstance(call["function"]["name"], str | None), "name of a call's function is no string")


def checked(value: Any, **shapes: Any) -> dict[str, Any]:
    """`value` where it is an object whose fields are of these types (a tuple with NoneType: it may be missing), else BadPieceError."""
    check(isinstance(value, dict), f"{type(value).__name__} is no object")
    for name, shape in shapes.items():
        check(isinstance(value.get(name), shape), f"{name} is {type(value.get(name)).__name__}")
    return value


def careful(facts: Callable[[Any], Facts]) -> Callable[[Any], Facts]:
    """`facts` that refuses what it stumbles over: other versions of a tool leave things out or write them in another type."""

    @functools.wraps(facts)
    def refusing(value: Any) -> Facts:
        try:
            return facts(value)
        except BadPieceError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
            raise BadPieceError("wrong_shape", f"{type(problem).__name__}: {problem}"[:200]) from None

    return refusing


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing where it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """The value where it is a string that holds something, else None."""
    return value if isinstance(value, str) and value else None


def first(value: dict[str, Any], *keys: str) -> Any:
    """The value under the first key that has one."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def unpacked(value: Any) -> Any:
    """A JSON object or array out of its string, however often it was packed; other values and strings as they are."""
    inner = value
    for _ in range(4):
        if not isinstance(inner, str) or inner.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            inner = orjson.loads(inner)
        except orjson.JSONDecodeError:
            break
    return inner if isinstance(inner, dict | list) else value  # a text in quotation marks is one


def named(value: Any) -> str | None:
    """The value as a name where it is a string that holds something or a whole number, else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(value)


def number(value: Any) -> float | None:
    """The value where it is a finite number (and no truth value), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def count(value: Any) -> int | None:
    """The value where it is a whole number from 0 on that counts something, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT else None


def counted(value: Any) -> int | None:
    """A count, which exporters of traces write as a string or with a decimal point."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    found = number(value)
    return None if found is None else count(int(found))


def cost(value: Any) -> float | None:
    """A price in US dollars where it is a number from 0 on, else None."""
    found = number(value)
    return found if found is not None and found >= 0 else None


def total(counts: Sequence[Any]) -> Any:
    """Their sum; None where any is missing, since a sum over some is no sum."""
    return None if not counts or any(counted is None for counted in counts) else sum(counts)


def ints(value: Any) -> list[int] | None:
    """A list of whole numbers that holds some, else None."""
    if not isinstance(value, list) or not value or not all(count(item) is not None for item in value):
        return None
    return value


def floats(value: Any) -> list[float] | None:
    """A list of numbers that holds some, else None."""
    if not isinstance(value, list) or not value:
        return None
    read = [number(item) for item in value]
    return None if None in read else [item for item in read if item is not None]
