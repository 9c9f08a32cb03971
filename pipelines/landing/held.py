"""Which record ids a table holds already, asked many times in one landing.

Every data file's ids are read once and kept as 16 bytes each; a later version costs only its new files. Data files never
change, so a file that was read need not be read again; where one is gone (a rewrite), all are read anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.doors.lake import Snapshot
from pipelines.errors import LakeError

_PREFIX, _DIGITS = len("rec_"), 32
_FEW = 1 << 17

Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class Held:
    """The record ids of one table."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._old: Halves = _nothing()
        self._new: Halves = _nothing()
        """Ids of the files that came last: few, so that taking in a file does not sort all ids again."""

    def among(self, snapshot: Snapshot, ids: Sequence[str]) -> set[str]:
        """Those of some ids that the version holds."""
        if not ids:
            return set()
        self._follow(snapshot)
        first, second = _halves(ids)
        found = np.zeros(len(ids), bool)
        for kept in (self._old, self._new):
            found |= _found(kept, first, second)
        return {ids[index] for index in np.flatnonzero(found).tolist()}

    def _follow(self, snapshot: Snapshot) -> None:
        files = set(snapshot.files())
        if not self._files <= files:
            self._files, self._old, self._new = set(), _nothing(), _nothing()
        added = sorted(files - self._files)
        if not added:
            return
        folder, read = snapshot.file_system(), [self._new]
        for path in added:
            try:
                with folder.open_input_file(path) as stream:
                    column = pq.read_table(stream, columns=["record_id"]).column("record_id")
            except (OSError, pa.ArrowInvalid) as problem:
                raise LakeError(
                    f"{path} of table {snapshot.spec.name} cannot be read: {problem}", table=snapshot.spec.name
                ) from problem
            read.append(_halves([value for value in column.to_pylist() if value and len(value) == _PREFIX + _DIGITS]))
        self._files = files
        self._new = _sorted(read)
        if len(self._new[0]) > max(_FEW, len(self._old[0]) // 4):
            self._old, self._new = _sorted([self._old, self._new]), _nothing()


def _nothing() -> Halves:
    return np.zeros(0, np.uint64), np.zeros(0, np.uint64)


def _halves(ids: Sequence[str]) -> Halves:
    digits = bytes.fromhex("".join([value[_PREFIX:] for value in ids]))
    halves = np.frombuffer(digits, ">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _sorted(parts: Sequence[Halves]) -> Halves:
    first = np.concatenate([part[0] for part in parts])
    second = np.concatenate([part[1] for part in parts])
    order = np.argsort(first, kind="stable")
    return first[order], second[order]


def _found(kept: Halves, first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    left, right = np.searchsorted(kept[0], first, "left"), np.searchsorted(kept[0], first, "right")
    found = np.zeros(len(first), bool)
    for index in np.flatnonzero(left < right):
        found[index] = second[index] in kept[1][left[index] : right[index]]
    return found
