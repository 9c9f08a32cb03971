"""What all calls of one attempt have in common where the log names no attempt: their first request.

A call repeats everything before it, so the turns before the first answer stand at the head of every prompt of an attempt,
in every file and on every day. The tool schema is no part of it: harnesses leave it out of their last call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pipelines.landing.spelling import spoken


def root_of(turns: Sequence[dict[str, Any]]) -> str:
    """Names the turns that every later prompt of the same attempt begins with, as a hash of their canonical JSON.

    They end before the first assistant turn that follows a request; a greeting before it is part of them.
    """
    hashed = hashlib.sha256()
    asked = False
    for turn in turns:
        if turn["role"] == "assistant" and asked:
            break
        asked = asked or turn["role"] not in ("assistant", "system", "developer")
        said = spoken(turn)
        hashed.update(len(said).to_bytes(8, "big") + said)
    return f"root:{hashed.hexdigest()}"
