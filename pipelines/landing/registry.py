"""Every log format that nightshift reads.

To add one: write `pipelines/landing/<format>.py` with one class that fulfils `format.LogFormat` (jsonl.py and
json_array.py cut the two common kinds of file; give them a function that reads ids, time and attempt off one decoded
value and raises BadPieceError where the value is no such record), add an instance to FORMATS, and put small files of
its shape into tests/landing/. What a parser must hold:

- `detect` says yes to its own files only, by their content. tests/landing/test_registry.py tries every format's detect
  on every other's lines.
- ids are the vendor's where they are unique, None where they are not; never a position, never the file's name.
- nothing is dropped: what is no record is a BadRecord, what belongs to no attempt gets a skip_reason.
- only what the logged policy wrote is `sampled`: no simulated users, demonstrations, tool output, repeated prefixes.
- a missing outcome, model or time is None, never a guess; a harness fault is `fault`, never an outcome of 0.
- when the meaning of a stored record changes, raise `parser_version`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.errors import UnknownFormatError
from pipelines.landing.format import GIVES, HEAD_BYTES, LogFormat
from pipelines.landing.recorder import Recorder
from pipelines.landing.tau_bench import TauBench

FORMATS: tuple[LogFormat, ...] = (Recorder(), TauBench())


def by_name(name: str) -> LogFormat:
    """The format of that name; UnknownFormatError lists the names there are."""
    for format in FORMATS:
        if format.name == name:
            return format
    raise UnknownFormatError(f"no log format is called {name!r}; there are: {', '.join(names())}")


def names() -> list[str]:
    """Names of all formats, sorted."""
    return sorted(format.name for format in FORMATS)


def detect(path: Path) -> LogFormat | None:
    """The format of a file by its content, None where no format recognises it. Raises OSError where it cannot be read."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    return next((format for format in FORMATS if format.detect(head, path)), None)


def describe() -> list[dict[str, Any]]:
    """One row per format for `nightshift formats`: name, what writes it, what its records give (in the order of GIVES)."""
    return [
        {
            "name": format.name,
            "what": format.what,
            "parser_version": format.parser_version,
            "gives": [given for given in GIVES if given in format.gives],
        }
        for format in sorted(FORMATS, key=lambda format: format.name)
    ]
