"""Named steps at which a test may kill the process, to prove that a night survives it.

`NIGHTSHIFT_KILL_AT="landing/records:after_commit"` kills this process with SIGKILL when that step is reached;
`…#3` does so the third time. Unset, which is always in production, a step costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

_VARIABLE = "NIGHTSHIFT_KILL_AT"
_num_reached: dict[str, int] = {}


def reached(step: str) -> None:
    """Mark a step; dies there where the drill asks for it."""
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    name, _, count = wanted.partition("#")
    if name != step:
        return
    _num_reached[step] = _num_reached.get(step, 0) + 1
    if _num_reached[step] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
