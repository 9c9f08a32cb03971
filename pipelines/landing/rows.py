"""Records and bad pieces as redacted rows of their tables, column by column."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from pipelines.doors.engine import tokenizer_file
from pipelines.doors.tokenizer import Spelling, spelling_of
from pipelines.landing.chunks import Identified
from pipelines.landing.decoding import exact, written
from pipelines.landing.format import BadRecord, LogFormat
from pipelines.landing.redacted_tokens import with_token_ids
from pipelines.landing.redaction import Redactor, dumped
from pipelines.landing.redaction_rules import rules_of
from pipelines.landing.screening import Screen
from pipelines.landing.spelling import identities
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace

RAW_LIMIT = 1 << 16
"""Characters of a bad piece that quarantine keeps; file and offsets name the rest."""


@dataclass(frozen=True)
class Found:
    """A record or bad piece with its file; `format` None where no format recognises that."""

    piece: Identified | BadRecord
    shown: str
    format: LogFormat | None


@dataclass
class Rows:
    """Rows that were made, and the secrets that were replaced in each."""

    table: pa.Table
    redactions: dict[int, Counter[str]] = field(default_factory=dict)
    """Number of a row -> secrets by rule."""

    def without(self, ids: set[str]) -> Rows:
        """The same without those of some record ids."""
        if not ids:
            return self
        kept = [index for index, held in enumerate(self.table.column("record_id").to_pylist()) if held not in ids]
        renumbered = {index: number for number, index in enumerate(kept)}
        redactions = {renumbered[index]: counts for index, counts in self.redactions.items() if index in renumbered}
        return Rows(self.table.take(pa.array(kept, pa.int64())), redactions)

    def total(self) -> Counter[str]:
        """Secrets that were replaced in all of them, by rule."""
        total: Counter[str] = Counter()
        for counts in self.redactions.values():
            total.update(counts)
        return total


class RowMaker:
    """Makes the rows of one landing; `day` is that of records whose log has no times."""

    def __init__(self, workspace: Workspace, day: str) -> None:
        self.workspace, self.day = workspace, day
        self.now = datetime.datetime.now(datetime.UTC)
        self.rules = rules_of(workspace)
        self.screen = Screen(self.rules)
        self._stored: dict[str, str] = {}

    def records(self, found: Mapping[str, Found]) -> Rows:
        """Rows of landing/records."""
        columns: dict[str, list[Any]] = {name: [] for name in RECORDS.schema.names}
        redactions: dict[int, Counter[str]] = {}
        add = {name: column.append for name, column in columns.items()}
        for number, (record_id, one) in enumerate(found.items()):
            identified, format = one.piece, one.format
            assert isinstance(identified, Identified) and format is not None
            record, redactor = identified.record, self._redactor()
            raw, spelled = self._redacted(redactor, identified, format)
            add["record_id"](record_id)
            add["content_id"](identified.content_id)
            add["bundle_key"](identified.bundle_key)
            add["day"](self.day if record.time is None else record.time.date().isoformat())
            add["format"](format.name)
            add["parser_version"](format.parser_version)
            add["skip_reason"](record.skip_reason)
            add["raw"](raw)
            add["identities"](spelled)
            add["rules"](self.rules.hash)
            add["source"](self._name(one.shown))
            add["line"](record.line)
            add["byte_start"](record.byte_start)
            add["byte_end"](record.byte_end)
            add["landed_at"](self.now)
            if redactor.counts:
                redactions[number] = redactor.counts
        return Rows(pa.table(columns, schema=RECORDS.schema), redactions)

    def bad(self, found: Mapping[str, Found]) -> Rows:
        """Rows of landing/quarantine."""
        rows: list[dict[str, Any]] = []
        redactions: dict[int, Counter[str]] = {}
        for number, (record_id, one) in enumerate(found.items()):
            bad, redactor = one.piece, self._redactor()
            assert isinstance(bad, BadRecord)
            rows.append(
                {
                    "record_id": record_id,
                    "day": self.now.strftime("%Y-%m-%d"),
                    "format": None if one.format is None else one.format.name,
                    "rules": self.rules.hash,
                    "source": self._name(one.shown),
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
        return Redactor(self.workspace.redaction_key, self.rules)

    def _name(self, shown: str) -> str:
        """A file's name in the lake: ids and offsets are taken over the true one."""
        if shown not in self._stored:
            self._stored[shown] = self._redactor().text(shown)
        return self._stored[shown]

    def _redacted(self, redactor: Redactor, identified: Identified, format: LogFormat) -> tuple[bytes | str, str | None]:
        """The stored text, and the identities that must outlive a redaction: None where nothing was redacted."""
        record = identified.record
        if record.text is not None and self.screen.is_clean(record.text):
            return record.text, None
        value = record.value if record.text is None else exact(record.text)
        redacted = redactor.value(value)
        if not redactor.counts.total():
            return (written(value) if record.text is None else record.text), None
        try:  # the text changes and no id may: they are taken before
            spelled = dumped(identities(self.workspace.identity, format.spell(record.value)))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            spelled = None  # not to be read by this parser: the trajectories stage says so of the whole bundle
        redacted = with_token_ids(value, redacted, redactor, partial(self._tokenizer, value))
        return written(redacted), spelled

    def _tokenizer(self, value: dict[str, Any]) -> Spelling | None:
        """Of the model that made a call's ids; None where that is not this workspace's policy, whose tokenizer is known."""
        if str(value.get("policy_version")).partition("@")[0] != self.workspace.config.policy.name:
            return None
        path = tokenizer_file(self.workspace)
        return None if path is None else spelling_of(path)
