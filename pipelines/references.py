"""Ids as a person gives them: whole, or so much of their beginning that only one thing has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipelines.doors.queries import Queries
from pipelines.errors import UnknownReferenceError

ID_LENGTH = 36
"""Characters of a whole id: three letters, an underscore, 128 bits."""
NUM_CANDIDATES = 5
"""Ids that an error names where several begin alike."""

_BEGINNING = re.compile(r"[a-z]{3}_\w*")


def whole_id(queries: Queries, ref: str, query: str = "lineage/named", tables: Mapping[str, pa.Table] | None = None) -> str:
    """The one id that begins with `ref` (dots behind it are no part of it); `ref` as it is where it is no beginning of an id
    or of none that is there. `query` lists ids by $prefix. UnknownReferenceError where several begin so: it names them."""
    beginning = ref.rstrip(".…")
    if not _BEGINNING.fullmatch(beginning) or len(beginning) >= ID_LENGTH:
        return ref
    parameters: dict[str, Any] = {"prefix": beginning, "num_ids": NUM_CANDIDATES}
    found = queries.run(query, parameters, tables=tables).to_pylist()
    ids = [row["id"] for row in found]
    if not ids:
        return ref
    if len(ids) == 1 or beginning in ids:
        return beginning if beginning in ids else ids[0]
    num_more = found[0]["num_named"] - len(ids)
    raise UnknownReferenceError(
        f"{len(ids) + num_more} ids begin with {beginning}: {', '.join(ids)}"
        + (f" and {num_more} more" if num_more else "")
        + "; write more of the one that you mean",
        ref=ref,
    )
