"""What happens to log files in the wild costs no line and doubles none: packing, renaming, copying, cutting, rewriting."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.doors.lake import SERIAL, sequences_of
from pipelines.landing import chunks, jsonl, quarantine
from pipelines.landing import land as landing
from pipelines.landing.land import land
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, item, line, write_lines


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offsets at which JSONL files were begun to be read."""
    found: list[int] = []
    cut = jsonl.split_lines

    def noted(path: Path, start: int, *rest: object) -> Iterator[object]:
        found.append(start)
        return cut(path, start, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("pipelines.landing.recorder.split_lines", noted)
    return found


def calls(workspace: Workspace) -> list[str]:
    raws = workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()
    return sorted(json.loads(raw)["call_id"] for raw in raws)


def numbered(*numbers: int) -> list[str]:
    return sorted(f"call-{number}" for number in numbers)


def test_a_log_that_is_packed_after_its_rotation(workspace: Workspace, logs: Path) -> None:
    path = write_lines(logs / "log.jsonl", [call(1), call(2)])
    land(workspace, [logs])
    with path.open("ab") as stream:
        stream.write(line(call(3)))
    packed = logs / "log.jsonl.1.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    write_lines(path, [call(4)])
    landed = land(workspace, [logs])
    assert (landed.records, landed.seen, landed.quarantined) == (2, 2, 0)
    assert calls(workspace) == numbered(1, 2, 3, 4)
    again = land(workspace, [logs])
    assert (again.seen, again.unchanged) == (0, 2)


def test_a_packed_log_that_grows_is_read_on_in_unpacked_bytes(workspace: Workspace, logs: Path, starts: list[int]) -> None:
    path = logs / "log.jsonl.gz"
    path.write_bytes(gzip.compress(line(call(1))))
    land(workspace, [path])
    with path.open("ab") as stream:  # as `cat` and logrotate's appending writers do
        stream.write(gzip.compress(line(call(2)) + line(call(3))))
    landed = land(workspace, [path])
    assert (landed.records, landed.seen) == (2, 0)
    assert starts == [0, len(line(call(1))) - 1]
    rows = {json.loads(row["raw"])["call_id"]: row for row in workspace.lake.read(RECORDS.name).to_pylist()}
    assert [rows[name]["line"] for name in numbered(1, 2, 3)] == [1, 2, 3]
    assert rows["call-3"]["byte_start"] == len(line(call(1)) + line(call(2)))


def test_a_packed_log_takes_the_place_of_the_plain_one(workspace: Workspace, logs: Path, starts: list[int]) -> None:
    path = write_lines(logs / "log", [call(1), call(2)])
    land(workspace, [path])
    path.write_bytes(gzip.compress(path.read_bytes() + line(call(3))))
    landed = land(workspace, [path])
    assert (landed.records, landed.seen, starts[1:]) == (1, 0, [len(line(call(1)) + line(call(2))) - 1])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_packed_log_whose_end_is_missing_waits(workspace: Workspace, logs: Path, share: float) -> None:
    whole = gzip.compress(b"".join(line(call(number)) for number in range(200)), 1)
    path = logs / "log.gz"
    path.write_bytes(whole[: int(len(whole) * share)])
    first = land(workspace, [path])
    assert first.quarantined == 0 and first.waiting == 1 and first.records <= 200 * max(share, 0.2)
    path.write_bytes(whole)
    second = land(workspace, [path])
    assert (first.records + second.records, second.quarantined, second.waiting) == (200, 0, 0)


def test_renamed_copied_and_linked_logs_add_nothing(workspace: Workspace, logs: Path) -> None:
    path = write_lines(logs / "log.jsonl", [call(1), b"{torn\n", call(2)])
    land(workspace, [logs])
    shutil.copy(path, logs / "copy.jsonl")
    path.rename(logs / "renamed.jsonl")
    (logs / "linked.jsonl").hardlink_to(logs / "renamed.jsonl")
    (logs / "symbolic.jsonl").symlink_to("renamed.jsonl")
    landed = land(workspace, [logs])
    assert (landed.records, landed.quarantined) == (0, 0)
    assert calls(workspace) == numbered(1, 2)
    assert len(quarantine.listed(workspace)) == 1


def test_a_partial_copy_that_is_replaced_by_a_longer_one(workspace: Workspace, logs: Path, starts: list[int]) -> None:
    whole = b"".join(line(call(number)) for number in range(6))
    path = logs / "log.jsonl"
    for size in (10, len(whole) // 3, len(whole) // 2, len(whole) - 1, len(whole)):
        incoming = logs / ".log.jsonl.Xa81"  # rsync's own name for it, and a new inode
        incoming.write_bytes(whole[:size])
        incoming.rename(path)
        land(workspace, [logs])
    assert calls(workspace) == numbered(*range(6))
    assert quarantine.listed(workspace) == []
    assert starts == sorted(starts)


def test_copied_and_then_cut_to_nothing(workspace: Workspace, logs: Path) -> None:
    path = write_lines(logs / "log.jsonl", [call(1), call(2)])
    land(workspace, [logs])
    with path.open("r+b") as stream:
        shutil.copy(path, logs / "log.jsonl.1")
        stream.truncate(0)
    land(workspace, [logs])
    with path.open("ab") as stream:
        stream.write(line(call(3)))
    land(workspace, [logs])
    with path.open("ab") as stream:  # now as long as it was before, and longer
        stream.write(line(call(4)) + line(call(5)))
    land(workspace, [logs])
    assert calls(workspace) == numbered(1, 2, 3, 4, 5)


def test_cut_by_a_writer_that_keeps_its_place_leaves_nul_bytes(workspace: Workspace, logs: Path) -> None:
    path = write_lines(logs / "log.jsonl", [call(1), call(2)])
    with path.open("r+b") as stream:
        stream.seek(0, os.SEEK_END)
        land(workspace, [logs])
        path.open("r+b").truncate(0)
        stream.write(line(call(3)))
    landed = land(workspace, [logs])
    assert (landed.records, landed.quarantined) == (1, 1)
    assert calls(workspace) == numbered(1, 2, 3)


def test_a_new_log_under_an_old_name_and_inode(workspace: Workspace, logs: Path) -> None:
    path = write_lines(logs / "log.jsonl", [call(1), call(2)])
    land(workspace, [logs])
    inode = path.stat().st_ino
    path.write_bytes(line(call(3)) + line(call(4)) + line(call(5)))
    assert path.stat().st_ino == inode
    assert land(workspace, [logs]).records == 3
    path.write_bytes(line(call(3)) + line(call(6)))  # begins like the last one, and is shorter
    assert land(workspace, [logs]).records == 1
    with path.open("ab") as stream:
        stream.write(line(call(7)))
    landed = land(workspace, [logs])
    assert (landed.records, landed.seen) == (1, 0)  # what was acknowledged is the shorter file now
    assert calls(workspace) == numbered(*range(1, 8))


def test_records_without_ids_are_read_on_and_counted_right(workspace: Workspace, logs: Path) -> None:
    path = logs / "results.json"

    def write(*numbers: int) -> None:
        path.write_text(json.dumps([item(number) for number in numbers]), encoding="utf-8")

    write(1, 2)
    assert land(workspace, [path]).records == 2
    write(1, 2, 3)
    landed = land(workspace, [path])
    assert (landed.records, landed.seen) == (1, 0)
    write(1, 2, 3, 2)  # a second equal one: only the whole file can count it
    landed = land(workspace, [path])
    assert (landed.records, landed.seen) == (1, 3)


def test_many_small_files_are_one_commit(workspace: Workspace, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        write_lines(logs / f"{number % 7}" / f"{number}.jsonl", [call(number), b"{torn %d\n" % number])
    landed = land(workspace, [logs])
    assert (landed.records, landed.quarantined) == (60, 60)
    assert (workspace.lake.version(RECORDS.name), workspace.lake.version(QUARANTINE.name)) == (1, 1)
    held = workspace.lake.sequences(RECORDS.name)
    assert len(held) == 61 and held[SERIAL] == 1
    handle = workspace.lake.handle(RECORDS.name)
    assert handle is not None
    assert all(handle.transaction_version(app_id) == sequence for app_id, sequence in held.items())
    assert land(workspace, [logs]).unchanged == 60
    assert workspace.lake.version(RECORDS.name) == 1
    monkeypatch.setattr(landing, "BATCH_FILES", 10)
    for number in range(60):
        with (logs / f"{number % 7}" / f"{number}.jsonl").open("ab") as stream:
            stream.write(line(call(100 + number)))
    assert land(workspace, [logs]).records == 60
    version = workspace.lake.version(RECORDS.name)
    assert version is not None and 4 < version <= 14


def test_sequences_are_found_behind_a_checkpoint_as_well(workspace: Workspace, logs: Path) -> None:
    for number in range(4):
        land(workspace, [write_lines(logs / f"{number}.jsonl", [call(number)])])
        if number == 2:
            handle = workspace.lake.handle(RECORDS.name)
            assert handle is not None
            handle.create_checkpoint()
            handle.cleanup_metadata()
    handle = workspace.lake.handle(RECORDS.name)
    assert handle is not None
    held = sequences_of(handle)
    assert len(held) == 5
    assert sequences_of(handle, (2, {"other": 1}))["other"] == 1
    assert all(handle.transaction_version(app_id) == sequence for app_id, sequence in held.items())
    # a torn checkpoint that nothing points at is passed over
    log = Path(workspace.lake.root) / RECORDS.name / "_delta_log"
    (log / f"{4:020}.checkpoint.parquet").write_bytes(b"PAR1")
    assert sequences_of(handle) == held


def test_a_file_that_becomes_a_log_leaves_quarantine(workspace: Workspace, logs: Path) -> None:
    write_lines(logs / "other.jsonl", [call(0), b"{torn\n"])
    path = logs / "log.jsonl"
    path.write_bytes(b"starting up\n")
    land(workspace, [logs])
    assert quarantine.counts(workspace) == {"bad_json": 1, "unknown_format": 1}
    path.write_bytes(line(call(1)))
    assert land(workspace, [logs]).records == 1
    assert quarantine.counts(workspace) == {"bad_json": 1}
    assert land(workspace, [logs]).quarantined == 0


def test_ids_held_are_known_however_the_table_was_rewritten(workspace: Workspace, logs: Path) -> None:
    for number in range(5):
        land(workspace, [write_lines(logs / f"{number}.jsonl", [call(number)])])
    handle = workspace.lake.handle(RECORDS.name)
    assert handle is not None
    handle.optimize.compact()
    landed = land(workspace, [write_lines(logs / "all.jsonl", [call(number) for number in range(6)])])
    assert (landed.records, landed.seen) == (1, 5)


def test_only_new_data_files_are_read_for_their_ids(workspace: Workspace, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(chunks, "CHUNK_PIECES", 5)
    read: list[str] = []
    read_table = pq.read_table
    monkeypatch.setattr(
        "pipelines.landing.held.pq.read_table", lambda *given, **named: (read.append(str(given)), read_table(*given, **named))[1]
    )
    land(workspace, [write_lines(logs / "log.jsonl", [call(number) for number in range(50)])])
    assert len(read) <= 10  # one for each commit, not all of them for each chunk


def test_long_numbers_keep_their_digits_in_the_lake(workspace: Workspace, logs: Path) -> None:
    big, mail = str(2**70), "someone@example.com"
    plain = line(call(1)).replace(b'"seed": 1', b'"seed": ' + big.encode())
    secret = line(call(2)).replace(b'"seed": 2', b'"seed": ' + big.encode()).replace(b"Where is", mail.encode())
    land(workspace, [write_lines(logs / "log.jsonl", [plain, secret])])
    raws = workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()
    assert [json.loads(raw)["request"]["sampling"]["seed"] for raw in raws] == [2**70, 2**70]
    assert not any(mail in raw for raw in raws)


@pytest.mark.parametrize("between", ["\n", "\t", "\r", "\f", "\\", '"', "\\\\n", "\b", "/", "\u2028"])
def test_an_escape_before_a_secret_hides_nothing(workspace: Workspace, logs: Path, between: str) -> None:
    secret = "Abcdefghijklmnop0123456789"
    text = f"Authorization: Bearer{between}{secret} bearer {between} api_key={between}{secret}"
    land(workspace, [write_lines(logs / "log.jsonl", [call(1, request={"messages": [{"role": "user", "content": text}]})])])
    from pipelines.landing.redaction import Redactor

    (raw,) = workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()
    assert json.loads(raw)["request"]["messages"][0]["content"] == Redactor(workspace.redaction_key).text(text)
