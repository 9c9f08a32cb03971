"""Files of records in the wrapping that their writer chose: the items of an array, a line each, or one document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pipelines.landing.document import split_document
from pipelines.landing.format import Piece
from pipelines.landing.head import Head
from pipelines.landing.json_array import split_array
from pipelines.landing.jsonl import split_lines
from pipelines.landing.pieces import FactsOf


def split_wrapped(head: Head, start: int, line: int, is_row: Callable[[Any], bool], facts: FactsOf) -> Iterator[Piece]:
    """One piece per record; a file is read line by line where `is_row` knows one of its first lines, else as a whole."""
    if head.items:
        return split_array(head.path, facts, start)
    if any(is_row(row) for row in head.rows):
        return split_lines(head.path, start, line, facts)
    return split_document(head.path, start, facts)


def split_rows(head: Head, start: int, line: int, facts: FactsOf) -> Iterator[Piece]:
    """The same for formats whose records never fill a file alone."""
    return split_array(head.path, facts, start) if head.items else split_lines(head.path, start, line, facts)
