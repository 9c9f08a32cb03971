"""A stored record under the rules in force: what a replay writes in its place after the rules have changed.

Rules only ever take away: what an older set replaced stays replaced, since nobody has the text any more. Identities that
were kept when a record was first changed stay, so that a new redaction key moves none either; of one that is changed now for the first time they are taken now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from pipelines.errors import UnknownFormatError
from pipelines.ids import Identity
from pipelines.landing import registry
from pipelines.landing.naming import NOTHING, Naming
from pipelines.landing.redaction import Redactor, dumped, keyed_anew, without_token_ids
from pipelines.landing.spelling import identities


def redacted_again(row: Mapping[str, Any], redactor: Redactor, identity: Identity, naming: Naming = NOTHING) -> dict[str, Any]:
    """The columns of landing/records (`raw`, `identities`, `rules`) that a row has under the redactor's rules.

    `rules` always becomes theirs; equal `raw` means that nothing else changes. Ids and logprobs of a record that changes
    now become null: which tokens spelled the secret was told only by the text that is gone.
    """
    raw = keyed_anew(row["raw"], redactor.key, row["rules"])
    value, before = orjson.loads(raw), redactor.counts.total()
    redacted, kept = redactor.value(value), row["identities"]
    if redactor.counts.total() == before:
        if raw != row["raw"]:  # ids spell the old tokens
            raw = dumped(without_token_ids(value))
        return {"raw": raw, "identities": kept, "rules": redactor.under}
    try:
        spelled = registry.by_name(row["format"]).spell(value)
        if kept is None:
            kept = dumped(identities(identity, spelled, naming, value))
        elif naming:  # a mask or a path that was configured since it was changed first
            kept = dumped(naming.completed(identity, spelled.turns, orjson.loads(kept), value))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, UnknownFormatError):
        pass  # as at landing: the trajectories stage says of the whole bundle that it cannot be read
    return {"raw": dumped(redacted), "identities": kept, "rules": redactor.under}
