"""What tells the answers of one record apart where several attempts are made of it: choices of one answer, an attempt and its
branches in one document.

Whether an answer trained is known by its record (I14). Of a record that several attempts share each has answers of its own:
they are named by the record and by the path of turns that ends in the answer, so that siblings do not stand in each other's
way, and an attempt that goes on keeps the names that it had. Choices that came out alike, word by word, are numbered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipelines.ids import Identity
from pipelines.landing.format import Attempt


def shared_answers(
    identity: Identity, format: str, attempts: Sequence[Attempt], claims: Sequence[Sequence[str]]
) -> list[list[str] | None]:
    """For each attempt of a bundle the names of its own answers, None where it shares no record.

    `<record_id>+<path>` and `<format>:<claim>`, with `#1`, `#2`, … behind it where an attempt before has the same name.
    `claims`: of each attempt those on answers that no other bundle owns. Turns must have their `id`.
    """
    holders = Counter(record_id for attempt in attempts for record_id in attempt.record_ids)
    found: list[list[str] | None] = [None] * len(attempts)
    seen: Counter[str] = Counter()
    for place, attempt in sorted(enumerate(attempts), key=lambda numbered: numbered[1].ref):
        shared = [record_id for record_id in attempt.record_ids if holders[record_id] > 1]
        paths = _paths(identity, attempt) if shared else []
        if not paths:
            continue
        names = [f"{record_id}+{path}" for record_id in shared for path in paths]
        names += [f"{format}:{claim}" for claim in claims[place]]
        numbered = [f"{name}#{seen[name]}" if seen[name] else name for name in names]
        seen.update(names)
        found[place] = numbered
    return found


def _paths(identity: Identity, attempt: Attempt) -> list[str]:
    """Of each sampled turn: what was said up to it. Reasoning may be lost on the way back, so ids of turns alone count."""
    path, found = "", list[str]()
    for turn in attempt.turns:
        path = identity.of("turn", "path", path, turn["id"])
        if turn["sampled"]:
            found.append(path)
    return found
