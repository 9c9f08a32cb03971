"""Each format knows its own files and no others."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from pipelines.errors import UnknownFormatError
from pipelines.landing import registry
from pipelines.landing.decoding import decode
from pipelines.landing.format import GIVES, SourceRecord
from pipelines.landing.head import Head

MODULES = [
    import_module(f"tests.landing.formats.{path.stem}") for path in sorted(Path(__file__).parent.glob("formats/test_*.py"))
]
"""Tests of formats; each says FORMAT, FILES (beginnings of files of its format) and FOLDERS (of real logs that it reads)."""

NONE = [
    b"",
    b"\n",
    b"hello",
    b"[]",
    b"{}",
    b"[[1, 2]]",
    b"[1]",
    b'{"task_id": 1, "reward": 1, "traj": []}',
    b'{"a": [{"task_id": 1, "reward": 1, "traj": []}]}',
    b'[{"id": {"task_id": 1, "reward": 1, "traj": []}}]',
    b"\x00\xff\xfe",
]
FILES: list[tuple[str | None, bytes]] = [(None, content) for content in NONE]
FILES += [(module.FORMAT.name, content) for module in MODULES for content in module.FILES]


@pytest.mark.parametrize(("name", "content"), FILES)
def test_detect(tmp_path: Path, name: str | None, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert [format.name for format in registry.FORMATS if format.detect(Head(path))] == ([name] if name else [])
    found = registry.detect(path)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, content in FILES if name])
def test_what_is_stored_is_the_value_that_the_format_reads(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for piece in registry.by_name(name).split(path):
        if isinstance(piece, SourceRecord) and piece.text is not None:
            assert decode(piece.text)[0] == piece.value


def test_every_format_has_files_here_and_describes_itself() -> None:
    assert set(registry.names()) == {name for name, _ in FILES if name}
    for row in registry.describe():
        assert set(row["gives"]) <= set(GIVES)
        assert row["what"] and registry.by_name(row["name"]).parser_version == row["parser_version"]


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownFormatError, match=r"recorder, .*tau_bench"):
        registry.by_name("nonsense")


def test_real_logs_are_claimed_by_the_right_format_and_by_one(shared_logs: Path) -> None:
    wrong = []
    for path in sorted(path for path in shared_logs.rglob("*") if path.is_file()):
        folder = path.relative_to(shared_logs).parts[0]
        head = Head(path)
        claimed = set() if head.is_empty else {format.name for format in registry.FORMATS if format.detect(head)}
        allowed = {module.FORMAT.name for module in MODULES if folder in module.FOLDERS}
        if not claimed <= allowed or len(claimed) > 1:
            wrong.append((str(path.relative_to(shared_logs)), sorted(claimed)))
    assert wrong == []


@pytest.mark.parametrize(("name", "content"), FILES)
def test_the_text_of_a_record_is_that_of_its_value(tmp_path: Path, name: str | None, content: bytes) -> None:
    """Landing stores the text where nothing is redacted, and stage 2 reads it as the value."""
    path = tmp_path / "file"
    path.write_bytes(content)
    for piece in registry.by_name(name).split(path) if name else ():
        assert not isinstance(piece, SourceRecord) or piece.text is None or decode(piece.text)[0] == piece.value
