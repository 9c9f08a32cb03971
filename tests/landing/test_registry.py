"""Each format knows its own files and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import UnknownFormatError
from pipelines.landing import registry
from pipelines.landing.format import GIVES
from tests.landing.lines import call, item, line

FILES = {
    "recorder": [line(call(1)) + line(call(2)), line(call(1))[:70], b"{torn\n" + line(call(1))],
    "tau_bench": [json.dumps([item(1)]).encode(), json.dumps([item(1)], indent=2).encode(), json.dumps([item(1)]).encode()[:400]],
    None: [
        b"",
        b"\n",
        b"hello",
        b"[]",
        b"[[1, 2]]",
        b"[1]",
        b'{"messages": []}\n',
        b'{"task_id": 1, "reward": 1, "traj": []}',
        b'{"a": [{"task_id": 1, "reward": 1, "traj": []}]}',
        b'[{"id": {"task_id": 1, "reward": 1, "traj": []}}]',
        b"\x00\xff\xfe",
    ],
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, contents in FILES.items() for content in contents])
def test_detect(tmp_path: Path, name: str | None, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert [format.name for format in registry.FORMATS if format.detect(content, path)] == ([name] if name else [])
    found = registry.detect(path)
    assert (found.name if found else None) == name


def test_every_format_has_files_here_and_describes_itself() -> None:
    assert set(registry.names()) == {name for name in FILES if name}
    for row in registry.describe():
        assert set(row["gives"]) <= set(GIVES)
        assert row["what"] and registry.by_name(row["name"]).parser_version == row["parser_version"]


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownFormatError, match=r"recorder, tau_bench"):
        registry.by_name("nonsense")


def test_real_logs_of_other_formats_are_not_claimed(shared_logs: Path) -> None:
    claimed = {
        path.relative_to(shared_logs).parts[0]: format.name
        for path in shared_logs.rglob("*")
        if path.is_file() and (format := registry.detect(path)) is not None
    }
    assert claimed == {"tau_bench": "tau_bench"}
