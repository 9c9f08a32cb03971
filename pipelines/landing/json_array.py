"""Files that are one JSON array of records, cut at the commas between its items, with each item's bytes and line.

The array is cut by its brackets and strings alone, so that one item that is no JSON (a NaN, a raw control character)
costs that item and not the file; and it is read through a window of one item, so that a file may be larger than memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import Piece, Unfinished
from pipelines.landing.opening import BLOCK, open_log, read_block
from pipelines.landing.pieces import FactsOf, bad, piece

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_SPACE = b" \t\r\n"


def split_array(path: Path, facts: FactsOf, start: int = 0) -> Iterator[Piece]:
    """The items of the file's array that begin at `start` or behind; `facts` reads one value or raises BadPieceError.

    An item that the file ends in the middle of is Unfinished. What stands behind the array is a BadRecord.
    """
    for raw, begin, line, whole in _items(path):
        if not whole:
            rest = BadPieceError("bad_json", "the file ends inside this item")
            yield Unfinished(line=line, byte_start=begin, at_rest=bad(raw, line, begin, rest) if raw else None)
        elif begin >= start:
            yield piece(raw, line, begin, facts)


def _items(path: Path) -> Iterator[tuple[bytes, int, int, bool]]:
    """Bytes, offset and line of each item without the white space around it; not whole where the file ends inside it."""
    depth, opened, closed = 0, False, False
    with open_log(path) as stream:
        window, base, line = b"", 0, 1  # what is read and not yet cut; its offset and line
        scanned, ended = 0, False
        while not ended:
            more = read_block(stream, max(BLOCK, len(window)))  # doubling, so that a long item is not scanned over and over
            ended = not more
            window += more
            begin = 0
            for found in _TOKEN.finditer(window, scanned):
                token = found.group()
                if closed:
                    break
                if token == b'"':  # a string that goes on behind the window
                    scanned = found.start()
                    break
                scanned = found.end()
                if token in (b"[", b"{"):
                    depth += 1
                    if depth == 1 and not opened:
                        opened, cut = True, (begin, begin)
                    else:
                        continue
                elif token in (b"]", b"}"):
                    depth -= 1
                    if depth > 0:
                        continue
                    closed, cut = True, (begin, found.start())
                elif token == b"," and depth == 1:
                    cut = (begin, found.start())
                else:
                    continue
                item = window[slice(*cut)]
                if raw := item.strip(_SPACE):
                    ahead = item.index(raw)
                    yield raw, base + begin + ahead, line + item.count(b"\n", 0, ahead), True
                line += window.count(b"\n", begin, found.end())
                begin = found.end()
            else:
                scanned = max(scanned, begin)
            base, window, scanned = base + begin, window[begin:], scanned - begin
        if raw := window.strip(_SPACE):
            ahead = window.index(raw)
            yield raw, base + ahead, line + window.count(b"\n", 0, ahead), closed
        elif not closed:
            yield b"", base + len(window), line + window.count(b"\n"), False
