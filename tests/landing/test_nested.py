"""Records inside a value, with their bytes; and whatever stands in a trace, reading it does not fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.landing.format import LogFormat, SourceRecord
from pipelines.landing.nested import at, places
from tests.landing.formats import (
    test_claude_managed_agents,
    test_langfuse,
    test_langsmith,
    test_openinference,
    test_otlp_genai,
    test_vercel_ai,
)
from tests.landing.lines import stored

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", 'q"\\', "ü"]), inner, max_size=3),
    max_leaves=20,
)


@given(
    VALUES, st.lists(st.lists(st.sampled_from(["a", "b", "*"]), max_size=3).map(tuple), max_size=3), st.sampled_from([None, 1])
)
def test_places_are_those_of_the_decoded_value(value: Any, paths: list[tuple[str, ...]], indent: int | None) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    found = list(places(raw, paths))
    for place, begin, end in found:
        assert json.loads(raw[begin:end]) == at(value, place)
    assert {place for place, _, _ in found} == {place for path in paths for place in _matching(value, path)}


def _matching(value: Any, path: tuple[str, ...]) -> list[tuple[Any, ...]]:
    if not path:
        return [()]
    step, rest = path[0], path[1:]
    if step == "*":
        inner = list(enumerate(value)) if isinstance(value, list) else []
    else:
        inner = [(step, value[step])] if isinstance(value, dict) and step in value else []
    return [(key, *further) for key, held in inner for further in _matching(held, rest)]


TRACES: list[tuple[LogFormat, bytes]] = [
    (module.FORMAT, content)
    for module in (test_claude_managed_agents, test_langfuse, test_langsmith, test_openinference, test_otlp_genai, test_vercel_ai)
    for content in module.FILES
    if content.count(b"}") > 3 and not content.endswith(b",")  # those that are cut are tested with their format
]
JUNK = [
    None,
    True,
    7,
    -1.5,
    "",
    "x",
    "null",
    "[1]",
    [],
    {},
    [None],
    {"a": 1},
    [[]],
    "[[1, 2], {}]",
    {"role": "x", "content": 7},
    [{"type": "ai"}],
]


@pytest.mark.parametrize(("format", "content"), TRACES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_let_through_can_be_read(tmp_path: Path, format: LogFormat, content: bytes, data: st.DataObject) -> None:
    """Something anywhere in a file is something else: a bad record at most, and what landing takes stage 2 reads."""
    try:
        values = [json.loads(content)]
    except ValueError:
        values = [json.loads(text) for text in content.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        values = _changed(values, data)
    if not isinstance(values, list):
        return
    path = tmp_path / "file"
    path.write_bytes(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    bundles: dict[str | None, list[Any]] = {}
    for piece in format.split(path):
        if isinstance(piece, SourceRecord) and piece.skip_reason is None:
            bundles.setdefault(piece.bundle_ref, []).append(piece.value)
    for together in bundles.values():
        records = stored(format, *together)
        bundle = format.attempts(records)
        placed = {record_id for attempt in bundle.attempts for record_id in attempt.record_ids}
        assert placed | bundle.left.keys() == {record.record_id for record in records} and not placed & bundle.left.keys()
        refs = {attempt.ref for attempt in bundle.attempts}
        assert len(refs) == len(bundle.attempts) and {attempt.parent_ref for attempt in bundle.attempts} <= {None, *refs}
        assert {ref for ref, _ in bundle.left.values()} <= {None, *refs}
        again = format.attempts(records[::-1])
        assert [attempt.turns for attempt in again.attempts] == [attempt.turns for attempt in bundle.attempts]


def _changed(value: Any, data: st.DataObject) -> Any:
    """The value with something at a random place replaced, removed or doubled."""
    if isinstance(value, (dict, list)) and value and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        whole = dict(value) if isinstance(value, dict) else list(value)
        deed = data.draw(st.integers(0, 9))
        if deed == 0:
            del whole[key]
        elif deed == 1 and isinstance(whole, list):
            whole.append(whole[key])
        else:
            whole[key] = _changed(value[key], data)
        return whole
    if isinstance(value, str) and value[:1] in ("{", "[") and data.draw(st.booleans()):
        return json.dumps(_changed(json.loads(value), data))
    return data.draw(st.sampled_from(JUNK))
