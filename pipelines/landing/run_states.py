"""Files of whole runs that are written again after every step: what is read while a run goes on is an earlier state of it."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.landing.format import StoredRecord


def earlier_states(runs: Sequence[tuple[StoredRecord, bool]]) -> dict[str, str]:
    """Records that hold an earlier state of a run, and for each the record of its latest; `runs` says of each whether it ended.

    An earlier state had not ended, and another record begins with all of its turns and goes on or ends there. One without
    an answer is nobody's: every attempt at a task begins like it.
    """
    ids = {record.record_id: tuple(turn["id"] for turn in record.spelled.turns) for record, _ in runs}
    longest = sorted(runs, key=lambda run: (-len(ids[run[0].record_id]), not run[1], run[0].record_id))
    found: dict[str, str] = {}
    for place, (record, ended) in enumerate(longest):
        own = ids[record.record_id]
        if ended or not any(turn["sampled"] for turn in record.spelled.turns):
            continue
        for other, other_ended in longest[:place]:
            after = ids[other.record_id]
            if other.record_id not in found and after[: len(own)] == own and (other_ended or len(after) > len(own)):
                found[record.record_id] = other.record_id
                break
    return found
