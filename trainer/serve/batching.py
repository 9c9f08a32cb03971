"""The one thread that generates: takes waiting requests of one adapter, samples them together, and goes on to the next.

A burst of requests arrives one by one; after the first, the thread waits until nothing more comes for a moment. Requests
whose prompts are much longer than the others' wait for a batch of their own, since every row is padded to the longest.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from trainer.serve.generation import Answer, generate
from trainer.serve.policy import Adapter, ServedPolicy

MAX_ROWS = 128
"""Answers sampled together: on two cores 128 rows give a fifth more tokens a second than 64, and 256 hardly more."""
QUIET_SECONDS = 0.01
"""A burst has ended when nothing arrived for so long."""
LONGEST_WAIT_SECONDS = 0.1
MAX_PADDING = 0.25
"""Padding in the prompts of a batch, as a share of their tokens."""
FREE_PADDING_TOKENS = 2048
"""So much padding is allowed in any case."""


@dataclass(eq=False)
class Waiting:
    """One request: several answers to one prompt."""

    adapter: Adapter | None
    answers: list[Answer]
    finished: Future[None] = field(default_factory=Future)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        for answer in self.answers:
            answer.cancelled = True


class Batcher(threading.Thread):
    """Samples requests in the background; `submit` from any thread."""

    def __init__(self, policy: ServedPolicy) -> None:
        super().__init__(name="generation", daemon=True)
        self.policy = policy
        self.num_generated = 0
        """Tokens sampled since the start."""
        self.num_batches = 0
        self._waiting: list[Waiting] = []
        self._changed = threading.Condition()
        self._closed = False

    def submit(self, adapter: Adapter | None, answers: Sequence[Answer]) -> Waiting:
        """Queue a request; its future ends when all of its answers have, or carries the error."""
        waiting = Waiting(adapter, list(answers))
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify_all()
        return waiting

    def close(self) -> None:
        """End after the batch that is being sampled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self) -> None:
        """Take batches until closed."""
        while (batch := self._take()) is not None:
            try:
                self._generate(batch)
            except Exception as problem:  # one broken batch must not end the server; its requests get the error
                traceback.print_exc(file=sys.stderr)
                for waiting in batch:
                    if not waiting.finished.done():
                        waiting.finished.set_exception(problem)

    def _generate(self, batch: Sequence[Waiting]) -> None:
        owner = {answer: waiting for waiting in batch for answer in waiting.answers}
        left = {waiting: len(waiting.answers) for waiting in batch}

        def finish(answer: Answer) -> None:
            waiting = owner[answer]
            left[waiting] -= 1
            self.num_generated += len(answer.token_ids)
            if left[waiting] == 0 and not waiting.finished.done():
                waiting.finished.set_result(None)

        prefixes = self.policy.use(batch[0].adapter)
        self.num_batches += 1
        generate(self.policy, prefixes, list(owner), finish)

    def _take(self) -> list[Waiting] | None:
        with self._changed:
            while True:
                self._waiting = [waiting for waiting in self._waiting if not all(answer.cancelled for answer in waiting.answers)]
                if self._closed:
                    return None
                if self._waiting:
                    break
                self._changed.wait()
            started, arrived = time.monotonic(), 0
            while len(self._waiting) > arrived and time.monotonic() - started < LONGEST_WAIT_SECONDS:
                arrived = len(self._waiting)
                self._changed.wait(QUIET_SECONDS)
            batch = fitting(self._waiting)
            taken = set(batch)
            self._waiting = [waiting for waiting in self._waiting if waiting not in taken]
            return batch


def fitting(queue: Sequence[Waiting]) -> list[Waiting]:
    """The first of the queue and those behind it that are sampled together with it."""
    batch: list[Waiting] = []
    prompts: set[tuple[int, ...]] = set()
    num_rows = num_tokens = longest = 0
    for waiting in queue:
        prompt, rows = waiting.answers[0].prompt, len(waiting.answers)
        if batch and (waiting.adapter is not batch[0].adapter or num_rows + rows > MAX_ROWS):
            continue
        if prompt not in prompts:
            padded = max(longest, len(prompt)) * (len(prompts) + 1)
            total = num_tokens + len(prompt)
            if batch and padded - total > max(MAX_PADDING * total, FREE_PADDING_TOKENS):
                continue
            prompts.add(prompt)
            num_tokens, longest = total, max(longest, len(prompt))
        batch.append(waiting)
        num_rows += rows
    return batch
