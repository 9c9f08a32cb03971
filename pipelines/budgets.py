"""What a run of rollouts may use: rollouts, tokens, seconds. Asked before each rollout starts, so that none is ever cut short.

Rollouts run side by side and nobody knows beforehand what one costs. So each one in flight counts as the mean of those that
have ended, and before the first has ended only a few start: a budget that is small beside the concurrency holds as well.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

FIRST_WAVE = 4
"""Rollouts in flight for as long as none has told what one costs."""

GIVE_UP_AFTER = 8
"""Rollouts that all failed, without one that went well, before no more of the budget is spent on them."""


@dataclass
class Budget:
    """Bounds, and what was used of them so far; one event loop at a time."""

    num_rollouts: int
    num_tokens: int | None
    """None: no bound."""
    seconds: float | None
    """Wall time after which none starts; None: no bound."""
    num_ended: int = 0
    """Rollouts that ended, those of an earlier run of the same budget included."""
    tokens: int = 0
    """That they used."""
    stopped_by: str | None = None
    """rollouts, tokens, minutes or failed (reasons.TOP_UP_STOPS) once a rollout was refused for it."""
    _in_flight: int = 0
    _num_failed: int = 0
    _num_well: int = 0
    _began: float = field(default_factory=time.monotonic)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def admits(self) -> bool:
        """Whether another rollout may start, which then is in flight; waits where those in flight have to tell first."""
        async with self._changed:
            await self._changed.wait_for(self._decided)
            if self.stopped_by is not None:
                return False
            self._in_flight += 1
            return True

    async def take(self, num_tokens: int, *, failed: bool) -> None:
        """A rollout that was admitted has ended."""
        async with self._changed:
            self._in_flight -= 1
            self.num_ended += 1
            self.tokens += num_tokens
            self._num_failed += failed
            self._num_well += not failed
            self._changed.notify_all()

    def is_used(self) -> bool:
        """Whether no rollout may start any more, before any has."""
        self.stopped_by = self._refusal()
        return self.stopped_by is not None

    def _decided(self) -> bool:
        """Whether there is an answer by now: one may start, or none may any more."""
        if self.stopped_by is None:
            self.stopped_by = self._refusal()
        return self.stopped_by is not None or self._fits()

    def _refusal(self) -> str | None:
        if self.num_ended + self._in_flight >= self.num_rollouts:
            return "rollouts"
        if self.seconds is not None and time.monotonic() - self._began >= self.seconds:
            return "minutes"
        if self._num_failed >= GIVE_UP_AFTER and not self._num_well:
            return "failed"
        if self.num_tokens is not None and (self.tokens >= self.num_tokens or (not self._in_flight and not self._fits())):
            return "tokens"
        return None

    def _fits(self) -> bool:
        if self._num_failed + self._in_flight >= GIVE_UP_AFTER and not self._num_well:
            return False  # those in flight tell whether it goes on
        if self.num_tokens is None:
            return True
        if self.num_ended == 0:
            return self._in_flight < FIRST_WAVE
        return self.num_ended * (self.num_tokens - self.tokens) >= (self._in_flight + 1) * self.tokens
