"""Damage to a table's files on a local disk, and what heals it; works where the table does not open any more.

Delta's log is not synced to disk, so after a power cut its newest files may be cut, empty or full of zeros. An empty newest
commit makes rows vanish in silence, a cut one or a cut checkpoint stops the table from opening. Healing means to go back to
the last sound version: rows and the offsets of their files go back together, so that the same stages make them again.

Nothing is deleted. What is taken out of a table lies in `.damaged/` beside it, under its own path; somebody who knows that
it is not needed may delete it there (it may hold rows, and so text).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.doors import table_files
from pipelines.doors.lake import ORPHAN_HOURS, Lake, local_path
from pipelines.errors import LakeError
from pipelines.schemas import QUARANTINE, RECORDS, TABLES

DAMAGED = ".damaged"
LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

MADE_AGAIN = frozenset(name for name in TABLES if name.split("/")[0] in ("landing", "trajectories"))
"""Tables whose lost rows their stages find missing and make again, so that a hole may be closed."""

_NOTHING = b'{"commitInfo":{"operation":"WRITE","operationParameters":{"mode":"Append"},"engineInfo":"nightshift doctor"}}\n'


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a table's files."""

    table: str
    kind: str
    """no_log | newest_commit | first_commit | inner_commit | checkpoint | hint | gap | orphan | missing | unreadable"""
    path: Path
    detail: str
    """One line."""
    can_mend: bool = True
    files: tuple[Path, ...] = ()
    """Those that are taken out, in this order; empty where only `path` is meant."""
    loses_rows: bool = False
    """Rows that were acknowledged are in the table no more, and must be made again."""
    sources: Mapping[str, int] | None = field(default_factory=dict)
    """Of landing tables: rows that are lost by the log file that they are read again from; None: that cannot be known."""


def find(lake: Lake, name: str, *, deep: bool = False) -> list[Damage]:
    """What is wrong with one table, in the order in which it is mended; nothing on an object store, whose writes are whole.

    `deep`: every byte of every data file is read and held against its checksum, not only its length and its footer.
    """
    folder = local_path(lake, name)
    if folder is None or not folder.is_dir():
        return []
    log = _Log(name, folder)
    if not log.commits and not log.checkpoints:
        return log.gone()
    found = [*log.torn_commits(), *log.torn_checkpoints(), *log.gaps()]
    if not found:
        found = _of_the_open_table(lake, name, folder, deep)
    if not any(damage.kind != "missing" for damage in found):
        found += log.orphans()
    return found


def mend(lake: Lake, damage: Damage) -> str:
    """Heal one thing that `find` found; what was done, in one line. May be repeated after a kill."""
    folder = local_path(lake, damage.table)
    assert folder is not None and damage.can_mend
    if damage.kind == "missing":
        for path in damage.files:
            if path.exists():
                _set_aside(folder, path)
        lake.drop_missing_files(damage.table)
        return f"{damage.table}: the missing files are named no more" + (
            f"; {len(damage.files)} damaged one(s) lie in {_beside(folder)}" if damage.files else ""
        )
    if damage.kind == "first_commit":
        _set_aside(folder, damage.path, copy=True)
        _replace(damage.path, lake.first_commit(damage.table))
        return f"{damage.table}: version 0 is written anew; the damaged file lies in {_beside(folder)}"
    if damage.kind == "gap":
        for path in damage.files:
            _replace(path, lake.first_commit(damage.table) if int(path.stem) == 0 else _NOTHING)
        return f"{damage.table}: {len(damage.files)} missing version(s) hold nothing now"
    if damage.kind == "inner_commit":
        _set_aside(folder, damage.path, copy=True)
        _replace(damage.path, _NOTHING)
        return f"{damage.table}: version {int(damage.path.stem)} holds nothing now; the damaged file lies in {_beside(folder)}"
    files = damage.files or (damage.path,)
    for path in files:
        if path.exists():
            _set_aside(folder, path)
    return f"{damage.table}: {len(files)} file(s) moved to {_beside(folder)} ({damage.detail})"


def forget_offsets(lake: Lake) -> int:
    """Forget how far every source file is landed, so that all are read anew; record ids decide what is new. How many."""
    folder = local_path(lake, RECORDS.name)
    if folder is None or lake.handle(RECORDS.name) is None:
        return 0
    app_ids = {action["txn"]["appId"] for action in _Log(RECORDS.name, folder).actions() if action.get("txn")}
    offsets = sorted(app_id for app_id in app_ids if app_id.startswith("landing/"))
    lake.restart_sequences(RECORDS.name, offsets)
    return len(offsets)


def needs_landing_anew(damages: list[Damage]) -> bool:
    """Whether rows are lost whose offsets are not: a newest commit of landing/records takes its offset with it, and so
    does its whole log."""
    return any(
        damage.loses_rows
        and (damage.table == QUARANTINE.name or (damage.table == RECORDS.name and damage.kind not in ("newest_commit", "no_log")))
        for damage in damages
    )


class _Log:
    """The files of a `_delta_log`, read as files."""

    def __init__(self, table: str, folder: Path) -> None:
        self.table, self.folder, self.log = table, folder, folder / LOG
        self.commits = {int(path.stem): path for path in self.log.glob("*.json") if path.stem.isdigit()}
        self.checkpoints = {
            int(path.name.split(".")[0]): path for path in self.log.glob("*.checkpoint.parquet") if path.name[:20].isdigit()
        }
        self.torn = {version: why for version, path in self.commits.items() if (why := _torn(path)) is not None}
        self.unreadable = {version for version, path in self.checkpoints.items() if _checkpoint(path) is None}
        sound = self.checkpoints.keys() - self.unreadable
        self.base = max(sound, default=-1)
        """Newest version that a sound checkpoint holds whole; -1: the log begins with its first commit."""

    def torn_commits(self) -> list[Damage]:
        """Commits behind the last checkpoint that are cut or empty; those before it are history that nothing reads."""
        torn = sorted(version for version in self.torn if version > self.base)
        newest = []
        while torn and torn[-1] == max(self.commits) - len(newest):
            newest.append(torn.pop())
        found = []
        if newest:
            first = min(newest)
            detail = f"version {first} is {self.torn[first]}: what it added is not in the table"
            # the newest first: whatever a kill leaves is the beginning of a log
            files = tuple(self.commits[version] for version in newest)
            found.append(Damage(self.table, "newest_commit", self.commits[first], detail, files=files, loses_rows=True))
        if torn and torn[0] == 0:
            detail = f"version 0, which says what columns it has, is {self.torn[torn.pop(0)]}"
            found.append(Damage(self.table, "first_commit", self.commits[0], detail))
        for version in torn:
            mends = self.table in MADE_AGAIN
            detail = f"version {version} is {self.torn[version]}, and later ones were built on it"
            detail += "" if mends else "; bring it back from a backup, what it added cannot be made again"
            found.append(Damage(self.table, "inner_commit", self.commits[version], detail, mends, loses_rows=True))
        return found

    def torn_checkpoints(self) -> list[Damage]:
        """Checkpoints that cannot be read, and a hint that names one that is not there."""
        found = []
        hint = self.log / LAST_CHECKPOINT
        named = _hinted(hint)
        for version in sorted(self.unreadable):
            whole = self._is_whole(from_version=max((v for v in self.checkpoints.keys() - self.unreadable), default=-1))
            detail = f"the checkpoint of version {version} is cut"
            files = (hint, self.checkpoints[version]) if hint.exists() else (self.checkpoints[version],)
            found.append(Damage(self.table, "checkpoint", self.checkpoints[version], detail, whole, files=files))
        if not found and hint.exists() and named not in self.checkpoints:
            detail = "its hint names a checkpoint that is not there" if named is not None else "its hint is cut"
            found.append(Damage(self.table, "hint", hint, detail, self._is_whole(self.base)))
        return found

    def gone(self) -> list[Damage]:
        """Data files without any log: somebody took it away."""
        files = tuple(self._row_files())
        if not files:
            return []
        detail = f"its {LOG} is gone, and {len(files)} data file(s) are there; bring {self.log} back from a backup"
        mends = self.table in MADE_AGAIN
        if mends:
            detail += ", or let its rows be made again with --fix"
        return [
            Damage(self.table, "no_log", self.log, detail, mends, files, loses_rows=True, sources=_sources_of(self.table, files))
        ]

    def gaps(self) -> list[Damage]:
        """Versions that are missing behind the last checkpoint."""
        if not self.commits or self._is_whole(self.base) or self.unreadable:
            return []
        missing = [version for version in range(self.base + 1, max(self.commits) + 1) if version not in self.commits]
        said = f"version {missing[0]} is" if len(missing) == 1 else f"versions {missing[0]} to {missing[-1]} are"
        if len(missing) not in (1, missing[-1] - missing[0] + 1):
            said = f"{len(missing)} versions, {missing[0]} is one, are"
        detail = f"{said} missing from its log; bring {self.log} back from a backup"
        mends = self.table in MADE_AGAIN
        named = self._named()
        lost = tuple(path for path in self._row_files() if str(path.relative_to(self.folder)) not in named)
        if mends:
            detail += ", or let the rows be made again with --fix"
        elif lost:
            detail += f"; their rows lie in {len(lost)} data file(s) that no version names, {lost[0].name} is one"
        files = tuple(self.log / f"{version:020}.json" for version in missing)
        sources = _sources_of(self.table, lost) if mends else {}
        return [Damage(self.table, "gap", self.log, detail, mends, files, loses_rows=True, sources=sources)]

    def orphans(self) -> list[Damage]:
        """Data files that no version names, and half-written commits, too old to be of a writer that is at work."""
        named, oldest = self._named(), time.time() - ORPHAN_HOURS * 3600
        files = [path for path in self._row_files() if str(path.relative_to(self.folder)) not in named]
        old = tuple(path for path in [*files, *sorted(self.log.glob("*.tmp"))] if path.stat().st_mtime < oldest)
        if not old:
            return []
        detail = f"{len(old)} file(s) that no version names, left by writers that were killed"
        return [Damage(self.table, "orphan", old[0], detail, files=old)]

    def actions(self) -> list[dict[str, Any]]:
        """Everything that the log says, of all sound commits and checkpoints."""
        found = []
        for version, path in sorted(self.commits.items()):
            if version not in self.torn:
                found += [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        for version in sorted(self.checkpoints.keys() - self.unreadable):
            held = _checkpoint(self.checkpoints[version])
            if held is not None:
                found += held.select([name for name in ("add", "remove", "txn") if name in held.column_names]).to_pylist()
        return found

    def _row_files(self) -> list[Path]:
        found = sorted(self.folder.rglob("*.parquet"))
        return [path for path in found if LOG not in path.relative_to(self.folder).parts]

    def _named(self) -> set[str]:
        """Data files that some version names."""
        return {unquote(action[kind]["path"]) for action in self.actions() for kind in ("add", "remove") if action.get(kind)}

    def _is_whole(self, from_version: int) -> bool:
        newest = max(self.commits, default=from_version)
        return all(version in self.commits for version in range(from_version + 1, newest + 1))


def _of_the_open_table(lake: Lake, name: str, folder: Path, deep: bool) -> list[Damage]:
    """What only shows once the log is read: data files that are gone or are not what was written, or a log that makes no
    sense for a reason not known here."""
    try:
        handle = lake.handle(name)
    except LakeError as problem:
        return [Damage(name, "unreadable", folder, f"{problem}; bring it back from a backup", can_mend=False)]
    if handle is None:
        return []
    named = {folder / unquote(row["path"]): row for row in pa.table(handle.get_add_actions(flatten=True)).to_pylist()}
    checksums = table_files.sums(folder) if deep else {}
    wrong: dict[str, list[Path]] = {"are gone": [], "are cut": [], "hold other bytes than were written": []}
    gone, cut, flipped = wrong.values()
    for path, row in named.items():
        if not path.exists():
            gone.append(path)
        elif table_files.is_cut(path, row["size_bytes"], row.get("num_records")):
            cut.append(path)
        elif deep and table_files.is_flipped(path, checksums.get(str(path.relative_to(folder)))):
            flipped.append(path)
    damaged = [*gone, *cut, *flipped]
    if not damaged:
        return []
    said = [f"{len(paths)} of {len(named)} data files {what}, {paths[0].name} is one" for what, paths in wrong.items() if paths]
    detail = f"{' and '.join(said)} ({_held([named[path] for path in damaged])}); bring them back from a backup"
    mends = name in MADE_AGAIN
    if mends:
        detail += ", or let their rows be made again with --fix"
    files, sources = (*cut, *flipped), _sources_of(name, (*cut, *flipped))
    if gone and name.startswith("landing/"):
        sources = None
    return [Damage(name, "missing", damaged[0], detail, mends, files, loses_rows=True, sources=sources)]


def _held(rows: list[dict[str, Any]]) -> str:
    """What data files held, by the log."""
    num = sum(row.get("num_records") or 0 for row in rows)
    days = [row[key] for row in rows for key in ("partition.day", "min.day", "max.day") if row.get(key)]
    return f"{num} rows" + (f" of {min(days)} to {max(days)}" if days else "")


def _sources_of(table: str, files: tuple[Path, ...]) -> dict[str, int] | None:
    if not table.startswith("landing/"):
        return {}
    found = table_files.rows_by_source(files)
    return None if found is None else dict(found)


def _torn(path: Path) -> str | None:
    """What is wrong with a commit: None where it is whole."""
    content = path.read_bytes()
    if not content.strip(b"\0 \r\n\t"):
        return "empty"
    actions = []
    for line in content.splitlines():
        try:
            actions.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            return "cut"
    if not all(isinstance(action, dict) for action in actions):
        return "cut"
    # a cut between two lines leaves whole lines: the writer said how many files it added
    told = next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})
    num_added = (told.get("operationMetrics") or {}).get("num_added_files")
    if told.get("operation") == "WRITE" and isinstance(num_added, int):
        held = sum(1 for action in actions if action.get("add"))
        return "cut" if held < num_added else None
    return None


def _checkpoint(path: Path) -> pa.Table | None:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None


def _hinted(path: Path) -> int | None:
    try:
        return int(orjson.loads(path.read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _beside(folder: Path) -> Path:
    return folder.parent / DAMAGED / folder.name


def _set_aside(folder: Path, path: Path, *, copy: bool = False) -> None:
    target = _beside(folder) / path.relative_to(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while target.exists():
        number += 1
        target = target.with_name(f"{path.name}.{number}")
    if copy:
        shutil.copy2(path, target)
    else:
        path.rename(target)
    _sync(target.parent)
    _sync(path.parent)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
