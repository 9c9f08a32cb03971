"""Damage that only shows on a second look: a log that is gone, a version that is missing, bytes that were flipped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines import doctor
from pipelines.doors import table_files
from pipelines.errors import LakeError
from pipelines.landing.land import land
from pipelines.schemas import DECISIONS, QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, line, write_lines
from tests.test_doctor import MADE, append, commits, heal, kept, log_of, logs, row, take_in, undamaged, whole, wrong

__all__ = ["undamaged", "whole"]


def files_of(workspace: Workspace, table: str) -> list[Path]:
    handle = workspace.lake.handle(table)
    assert handle is not None
    return sorted(Path(uri.removeprefix("file://")) for uri in handle.file_uris())


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(("table", "is_folder_left"), [*((table, False) for table in MADE), (RECORDS.name, True)])
def test_a_table_whose_log_was_deleted_is_named_and_made_again(
    workspace: Workspace, undamaged: dict[str, str], table: str, is_folder_left: bool
) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    num = len(files_of(workspace, table))
    shutil.rmtree(log_of(workspace, table))
    if is_folder_left:
        log_of(workspace, table).mkdir()
    with pytest.raises(LakeError, match="nightshift doctor"):  # nothing begins it anew in silence
        workspace.lake.read(table)
    (said,) = wrong(workspace, "damage")
    assert said.startswith(f"{table}: its _delta_log is gone") and "--fix" in said
    heal(workspace, folder)
    assert doctor.digest(workspace) == undamaged
    assert len(kept(workspace, table)) >= num
    assert wrong(workspace, "places") == []


def test_a_log_that_is_gone_is_not_mended_while_its_sources_are_gone_too(
    workspace: Workspace, undamaged: dict[str, str], tmp_path: Path
) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    shutil.rmtree(log_of(workspace, RECORDS.name))
    away = (folder / "1.jsonl").rename(tmp_path / "1.jsonl")
    assert doctor.fix(workspace) == []
    (said,) = wrong(workspace, "damage")
    assert "4 of its rows cannot be had again: 1 log file(s) are not there any more, logs/1.jsonl is one" in said
    away.rename(folder / "1.jsonl")
    heal(workspace, folder)
    assert doctor.digest(workspace) == undamaged


def test_the_log_of_a_table_that_nothing_makes_again_is_to_be_brought_back(workspace: Workspace, tmp_path: Path) -> None:
    append(workspace, DECISIONS.name, row(DECISIONS.name, policy="p", number=1))
    kept_log = shutil.move(log_of(workspace, DECISIONS.name), tmp_path / "log")
    assert doctor.fix(workspace) == []
    (said,) = wrong(workspace, "damage")
    assert said.startswith(f"{DECISIONS.name}: its _delta_log is gone") and "backup" in said and "--fix" not in said
    with pytest.raises(LakeError):
        append(workspace, DECISIONS.name, row(DECISIONS.name, policy="p", number=2))
    shutil.move(kept_log, log_of(workspace, DECISIONS.name))
    assert wrong(workspace, "damage") == []


@pytest.mark.parametrize(
    ("table", "missing"), [*((table, [-2]) for table in MADE), (RECORDS.name, [0, 1]), (QUARANTINE.name, [-3, -2])]
)
def test_a_version_that_is_missing_from_the_log_is_named_and_its_rows_made_again(
    workspace: Workspace, undamaged: dict[str, str], table: str, missing: list[int]
) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    paths = [commits(workspace, table)[number] for number in missing]
    for path in paths:
        path.unlink()
    (said,) = wrong(workspace, "damage")
    assert str(int(paths[0].stem)) in said and "missing from its log" in said and "--fix" in said
    heal(workspace, folder)
    assert doctor.digest(workspace) == undamaged


def test_a_version_that_nothing_makes_again_is_left_and_the_files_of_its_rows_are_named(workspace: Workspace) -> None:
    for number in range(3):
        append(workspace, DECISIONS.name, row(DECISIONS.name, policy="p", number=number))
    held = {path.name for path in files_of(workspace, DECISIONS.name)}
    commits(workspace, DECISIONS.name)[-2].unlink()
    assert doctor.fix(workspace) == []
    (said,) = wrong(workspace, "damage")
    assert "version 2 is missing" in said and "backup" in said and "--fix" not in said
    assert "1 data file(s) that no version names" in said and any(name in said for name in held)


@pytest.mark.parametrize("table", MADE)
def test_flipped_bytes_are_found_by_a_deep_look_and_their_rows_made_again(
    workspace: Workspace, undamaged: dict[str, str], table: str
) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    paths = files_of(workspace, table)
    flip(paths[0], paths[0].stat().st_size // 4)
    assert wrong(workspace, "damage") == []  # its length and its footer are as they were
    (said,) = [f.detail for f in doctor.check(workspace, deep=True) if f.check == "damage" and not f.ok]
    assert said.startswith(f"{table}: 1 of {len(paths)} data files hold other bytes than were written, {paths[0].name} is one")
    assert re.search(r"rows of 20\d\d-", said) and "--fix --deep" in said  # quarantine lies on the day of its landing
    assert doctor.fix(workspace, deep=True) != []
    assert doctor.fix(workspace, deep=True) == []
    take_in(Workspace.open(workspace.folder), folder)
    assert doctor.digest(workspace) == undamaged
    assert any(paths[0].name in name for name in kept(workspace, table))
    assert [f.detail for f in doctor.check(workspace, deep=True) if f.check == "damage" and not f.ok] == []


def test_a_footer_that_cannot_be_read_is_found_without_a_deep_look(workspace: Workspace, undamaged: dict[str, str]) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    path = files_of(workspace, RECORDS.name)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-60] + b"\xff" * 40 + content[-20:])  # as long as before, and with its mark at the end
    assert "are cut" in wrong(workspace, "damage")[0]
    heal(workspace, folder)
    assert doctor.digest(workspace) == undamaged


def test_rows_whose_log_file_is_gone_are_said_to_be_lost(workspace: Workspace) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    path = files_of(workspace, RECORDS.name)[0]
    (held,) = {name.as_py() for name in pq.read_table(path, columns=["source"], partitioning=None)["source"]}
    (workspace.folder / held).unlink()
    flip(path, 8)  # in the first column's pages, long before `source`
    (said,) = [f.detail for f in doctor.check(workspace, deep=True) if f.check == "damage" and not f.ok]
    assert "cannot be had again" in said
    assert any("cannot be had again" in line for line in doctor.fix(workspace, deep=True))
    take_in(Workspace.open(workspace.folder), folder)
    assert [said for said in wrong(workspace, "places") if said.startswith("4 records are not landed")] != []


def test_a_data_file_without_a_checksum_is_decoded(workspace: Workspace) -> None:
    land(workspace, [write_lines(workspace.folder / "log.jsonl", [call(number) for number in range(20)])])
    shutil.rmtree(Path(workspace.lake.root) / "landing" / table_files.SUMS)
    path = files_of(workspace, RECORDS.name)[0]
    assert not table_files.is_flipped(path, None)
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 4, len(content) // 2):
        content[at] ^= 0xFF
    path.write_bytes(bytes(content))
    assert table_files.is_flipped(path, None)
    assert [f.detail for f in doctor.check(workspace, deep=True) if f.check == "damage" and not f.ok] != []


def test_every_data_file_has_a_checksum_whatever_wrote_it(workspace: Workspace) -> None:
    folder = logs(workspace)
    take_in(workspace, folder)
    with (folder / "0.jsonl").open("ab") as stream:
        stream.write(line(call(900)))
    take_in(workspace, folder)  # replaces rows
    for table in (*MADE, QUARANTINE.name):
        root = Path(workspace.lake.uri(table))
        assert {str(path.relative_to(root)) for path in files_of(workspace, table)} <= table_files.sums(root).keys()
