"""Records and bad pieces as redacted rows of their tables, column by column."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.doors.tokenizer import Spelling, spelling_of
from pipelines.ids import Identity
from pipelines.landing.chunks import Identified
from pipelines.landing.decoding import exact, written
from pipelines.landing.format import BadRecord, LogFormat, SourceRecord
from pipelines.landing.masks import Masks
from pipelines.landing.naming import Naming
from pipelines.landing.redacted_tokens import with_token_ids
from pipelines.landing.redaction import Redactor, dumped, under
from pipelines.landing.redaction_rules import Rule, Rules
from pipelines.landing.screening import Screen
from pipelines.landing.screening_blocks import BlockScreen
from pipelines.landing.spelling import identities
from pipelines.schemas import QUARANTINE, RECORDS

RAW_LIMIT = 1 << 16
"""Characters of a bad piece that quarantine keeps; file and offsets name the rest."""


@dataclass(slots=True)
class Found:
    """A record or bad piece with its file; `format` None where no format recognises that."""

    piece: Identified | BadRecord
    shown: str
    format: LogFormat | None


@dataclass(frozen=True)
class RowSetting:
    """All that rows depend on besides their pieces; small, and sent to the processes that make rows."""

    identity: Identity = field(repr=False)
    redaction_key: bytes = field(repr=False)
    rules: tuple[Rule, ...] = field(repr=False)
    allow: tuple[str, ...] = field(repr=False)
    policy: str
    """Name of the workspace's own policy."""
    day: str
    """Of records whose log has no times."""
    now: datetime.datetime
    volatile: tuple[str, ...] = ()
    """Masks ([groups] volatile), and JSONPaths that name tasks or runs: what they give is kept where redaction changes it."""
    paths: tuple[str, ...] = ()


@dataclass
class Rows:
    """Rows that were made, and the secrets that were replaced in each."""

    table: pa.Table
    redactions: dict[int, Counter[str]] = field(default_factory=dict)
    """Number of a row -> secrets by rule."""

    def ids(self) -> list[str]:
        """Their record ids."""
        return self.table.column("record_id").to_pylist()

    def without(self, ids: set[str]) -> Rows:
        """The same without those of some record ids."""
        if not ids:
            return self
        kept = [index for index, held in enumerate(self.table.column("record_id").to_pylist()) if held not in ids]
        renumbered = {index: number for number, index in enumerate(kept)}
        redactions = {renumbered[index]: counts for index, counts in self.redactions.items() if index in renumbered}
        return Rows(self.table.take(pa.array(kept, pa.int64())), redactions)

    def part(self, start: int, num_rows: int) -> Rows:
        """Some rows that follow each other."""
        within = {number - start: counts for number, counts in self.redactions.items() if start <= number < start + num_rows}
        return Rows(self.table.slice(start, num_rows), within)

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """All rows of some parts, of which there is at least one."""
        redactions: dict[int, Counter[str]] = {}
        num_rows = 0
        for part in parts:
            redactions.update({num_rows + number: counts for number, counts in part.redactions.items()})
            num_rows += part.table.num_rows
        return Rows(pa.concat_tables([part.table for part in parts]), redactions)

    def total(self) -> Counter[str]:
        """Secrets that were replaced in all of them, by rule."""
        total: Counter[str] = Counter()
        for counts in self.redactions.values():
            total.update(counts)
        return total


class RowMaker:
    """Makes the rows of one landing; `tokenizer` names tokenizer.json of the policy's base model, None where there is none."""

    def __init__(self, setting: RowSetting, tokenizer: Callable[[], Path | None]) -> None:
        self.setting, self.day, self.now = setting, setting.day, setting.now
        self.rules = Rules(setting.rules, setting.allow)
        self.naming = Naming(Masks(setting.volatile), setting.paths)
        self._find_tokenizer = tokenizer
        self.screen = BlockScreen(Screen(self.rules))
        self._stored: dict[str, str] = {}

    def records(self, found: Mapping[str, Found]) -> Rows:
        """Rows of landing/records."""
        return self.listed_records(list(found), list(found.values()))

    def listed_records(self, ids: list[str], found: Sequence[Found]) -> Rows:
        """The same from ids, which may repeat, and what they stand for."""
        pieces = [one.piece for one in found]
        records = [piece.record for piece in pieces if isinstance(piece, Identified)]
        formats = [one.format for one in found if one.format is not None]
        raws: list[bytes | str | None] = [record.text for record in records]
        spelled: list[str | None] = [None] * len(raws)
        redactions: dict[int, Counter[str]] = {}
        for number in self._doubtful(raws):
            redactor = self._redactor()
            raws[number], spelled[number] = self._redacted(redactor, records[number], formats[number])
            if redactor.counts:
                redactions[number] = redactor.counts
        days = {time: self.day if time is None else time.date().isoformat() for time in {record.time for record in records}}
        num = len(records)
        columns: dict[str, Any] = {
            "record_id": ids,
            "content_id": [piece.content_id for piece in pieces if isinstance(piece, Identified)],
            "bundle_key": [piece.bundle_key for piece in pieces if isinstance(piece, Identified)],
            "day": [days[record.time] for record in records],
            "format": [format.name for format in formats],
            "parser_version": [format.parser_version for format in formats],
            "skip_reason": [record.skip_reason for record in records],
            "raw": _texts(raws),
            "identities": spelled,
            "rules": [under(self.rules, self.setting.redaction_key)] * num,
            "source": [self.name(one.shown) for one in found],
            "line": [record.line for record in records],
            "byte_start": [record.byte_start for record in records],
            "byte_end": [record.byte_end for record in records],
            "landed_at": [self.now] * num,
        }
        return Rows(pa.table(columns, schema=RECORDS.schema), redactions)

    def _doubtful(self, texts: Sequence[bytes | str | None]) -> list[int]:
        """Numbers of the texts that may hold a secret, and of those that are not written yet."""
        listed = [number for number, text in enumerate(texts) if isinstance(text, bytes)]
        clean = self.screen.clean([text for text in texts if isinstance(text, bytes)])
        kept = {number for number, fine in zip(listed, clean, strict=True) if fine}
        return [number for number in range(len(texts)) if number not in kept]

    def bad(self, found: Mapping[str, Found]) -> Rows:
        """Rows of landing/quarantine."""
        return self.listed_bad(found.items())

    def listed_bad(self, found: Iterable[tuple[str, Found]]) -> Rows:
        """The same from ids, which may repeat, and what they stand for."""
        rows: list[dict[str, Any]] = []
        redactions: dict[int, Counter[str]] = {}
        for number, (record_id, one) in enumerate(found):
            bad, redactor = one.piece, self._redactor()
            assert isinstance(bad, BadRecord)
            rows.append(
                {
                    "record_id": record_id,
                    "day": self.now.strftime("%Y-%m-%d"),
                    "format": None if one.format is None else one.format.name,
                    "rules": redactor.under,
                    "source": self.name(one.shown),
                    "line": bad.line,
                    "byte_start": bad.byte_start,
                    "byte_end": bad.byte_end,
                    "reason": bad.reason,
                    "detail": redactor.text(bad.detail),
                    "raw": redactor.bad_text(bad.raw, RAW_LIMIT),
                    "landed_at": self.now,
                }
            )
            if redactor.counts:
                redactions[number] = redactor.counts
        return Rows(pa.Table.from_pylist(rows, schema=QUARANTINE.schema), redactions)

    def _redactor(self) -> Redactor:
        return Redactor(self.setting.redaction_key, self.rules)

    def name(self, shown: str) -> str:
        """A file's name in the lake: ids and offsets are taken over the true one."""
        if shown not in self._stored:
            self._stored[shown] = self._redactor().text(shown)
        return self._stored[shown]

    def _redacted(self, redactor: Redactor, record: SourceRecord, format: LogFormat) -> tuple[bytes | str, str | None]:
        """The stored text, and the identities that must outlive a redaction: None where nothing was redacted."""
        value = record.value if record.text is None else exact(record.text)
        redacted = redactor.value(value)
        if not redactor.counts.total():
            return (written(value) if record.text is None else record.text), None
        try:  # the text changes and no id may: they are taken before
            spelled = dumped(identities(self.setting.identity, format.spell(record.value), self.naming, record.value))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            spelled = None  # not to be read by this parser: the trajectories stage says so of the whole bundle
        redacted = with_token_ids(value, redacted, redactor, partial(self._tokenizer, value))
        return written(redacted), spelled

    def _tokenizer(self, value: dict[str, Any]) -> Spelling | None:
        """Of the model that made a call's ids; None where that is not this workspace's policy, whose tokenizer is known."""
        if str(value.get("policy_version")).partition("@")[0] != self.setting.policy:
            return None
        return None if self._tokenizer_file is None else spelling_of(self._tokenizer_file)

    @cached_property
    def _tokenizer_file(self) -> Path | None:
        return self._find_tokenizer()  # only once it is asked for: it may have to be made first


def _texts(texts: Sequence[bytes | str | None]) -> pa.Array:
    """Texts as a column: copied once, where Arrow's own way from a list grows and copies again."""
    encoded = [text if isinstance(text, bytes) else (text or "").encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    if offsets[-1] >= 1 << 31 or None in texts:
        return pa.array(texts, pa.string())
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded)))
