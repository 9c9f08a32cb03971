"""What every answer on a terminal is drawn with: tables, one thing in two columns, rows that are too wide for a table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

WIDTH_ELSEWHERE = 160
"""Columns where output is no terminal and COLUMNS says none: a pipe has no width, and 80 would fold every id."""

_OWN_WIDTH = sys.stdout.isatty() or "COLUMNS" in os.environ
console = Console(soft_wrap=False, highlight=False, width=None if _OWN_WIDTH else WIDTH_ELSEWHERE)

NOTHING = "–"
ID_WIDTH = 36
"""An id that is cut names nothing: a value gets at least so many columns."""
_GAP = 2
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Print a table; the columns in `numbers` stand to the right, those in `whole` give room last."""
    drawn = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        show_header=any(columns),
        box=None,
        pad_edge=False,
    )
    for column in columns:
        drawn.add_column(column, justify="right" if column in numbers else "left", overflow="fold", no_wrap=column in whole)
    for row in rows:
        drawn.add_row(*(escape(text(value)) for value in row))
    console.print(drawn)


def text(value: Any) -> str:
    """One value as a cell."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(number)}" for key, number in value.items()) or NOTHING
    if isinstance(value, list):
        return ", ".join(text(entry) for entry in value) or NOTHING
    return str(value)


def fields(content: dict[str, Any]) -> None:
    """One thing: name and value."""
    table("", ["", ""], list(content.items()))


def rows(content: Sequence[dict[str, Any]]) -> None:
    """Rows of a question: a table where it fits the width, else one row below the other, a line for each value."""
    if not content:
        console.print("no rows")
        return
    columns = list(content[0])
    cells = [[_one_line(row[column]) for column in columns] for row in content]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + _GAP * (len(columns) - 1) > console.width:
        _below_each_other(columns, cells)
        return
    numbers = [column for column in columns if isinstance(content[0][column], (int, float))]
    table("", columns, cells, numbers=numbers)


def _below_each_other(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    names = max(map(cell_len, columns)) + _GAP
    room = max(console.width - names, ID_WIDTH)
    for number, row in enumerate(cells, start=1):
        if len(cells) > 1:
            console.rule(Text(f"row {number} of {len(cells)}"), align="left", characters="─", style="dim")
        for name, value in zip(columns, row, strict=True):
            line = Text.assemble((set_cell_size(name, names), "dim"), _cut(value, room))
            console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _cut(value: str, room: int) -> str:
    """A value in one line; where it is too long, its beginning and how long it is."""
    if cell_len(value) <= room:
        return value
    said = f"… ({len(value):,} characters)"
    return set_cell_size(value, room - cell_len(said)).rstrip() + said


def _one_line(value: Any) -> str:
    """A cell without what would move a terminal's cursor: logged text holds line ends and escape sequences."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text(value))
