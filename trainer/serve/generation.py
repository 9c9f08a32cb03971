"""Sampling of a batch of answers under one adapter, token by token.

Prompts that are equal are read once, what all prompts begin with is read once and kept, rows whose answer is finished make
room at once, and tokens that a grammar forces are read together instead of one by one. Every row draws from its own
generator by inverting the cumulative distribution, so that with a seed the same tokens come out whatever it was batched
with, as far as float noise allows (about 1e-5 in a log-probability).

Log-probabilities are those of the model itself (softmax of the raw logits, natural logarithm), whatever temperature, top_p
or grammar were asked for, as vLLM's default `raw_logprobs`. At temperature 1 without top_p and grammar they are those of
the distribution that was sampled from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad

from trainer.serve.grammar import Matcher
from trainer.serve.kv import KeyValues, visible_to
from trainer.serve.policy import MIN_PREFIX_TOKENS, Prefixes, ServedPolicy

NUM_RECENT_PROMPTS = 64
"""Prompts per adapter that a new prompt's beginning is compared with."""
FIRST_COLUMNS = 128
"""Columns for new tokens that a batch starts with; it grows where answers are longer."""
_BLOCK = 256


@dataclass(frozen=True)
class Sampling:
    """How an answer is sampled."""

    temperature: float = 1.0
    """0: the most probable token."""
    top_p: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are cut off from it."""


@dataclass(eq=False)
class Answer:
    """One answer that is being sampled, and what came out."""

    prompt: tuple[int, ...]
    sampling: Sampling
    draws: random.Random
    matcher: Matcher | None = None
    on_tokens: Callable[[Answer], None] | None = None
    """Called in the generating thread whenever tokens were added or the answer ended."""
    token_ids: list[int] = field(default_factory=list)
    """Sampled and forced tokens, the end token included where it was sampled."""
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    """`stop`: end token, stop text or end of the grammar; `length`: max_tokens; None: not finished."""
    stop_text: str | None = None
    """The stop text that ended it."""
    cancelled: bool = False
    """Nobody waits for it any more: its row is given up at the next token."""
    pending: list[int] = field(default_factory=list)
    """Its last tokens, which the model has not read yet."""
    ends_after_pending: str | None = None
    """finish_reason once the log-probabilities of forced tokens are known."""


def generate(policy: ServedPolicy, prefixes: Prefixes, answers: Sequence[Answer], on_finish: Callable[[Answer], None]) -> None:
    """Sample all answers to their end under the weights that are switched on; `on_finish` is called as each one ends."""
    if not answers:
        return
    with torch.inference_mode():
        batch = _Batch(policy, prefixes, answers, on_finish)
        while batch.rows:
            batch.step()


class _Batch:
    """Rows of answers; row i of the cache belongs to `rows[i]`."""

    def __init__(
        self, policy: ServedPolicy, prefixes: Prefixes, answers: Sequence[Answer], on_finish: Callable[[Answer], None]
    ) -> None:
        self.policy = policy
        self.on_finish = on_finish
        self.rows = list(answers)
        prompts = list(dict.fromkeys(answer.prompt for answer in answers))
        shared = self._shared_beginning(prefixes, prompts)
        longest = max(len(prompt) for prompt in prompts)
        room = min(max(answer.sampling.max_tokens for answer in answers), FIRST_COLUMNS)
        self.cache = KeyValues(policy.num_layers, len(answers), longest + room)
        self.visible = torch.zeros(len(answers), longest + room, dtype=torch.bool)
        if shared:
            self._fill(self.cache, prefixes.kept[shared], len(prompts))
            self.visible[: len(prompts), : len(shared)] = True
        logits = self._read([list(prompt[len(shared) :]) for prompt in prompts], [len(shared)] * len(prompts), num_kept=1)
        index = {prompt: row for row, prompt in enumerate(prompts)}
        source = torch.tensor([index[answer.prompt] for answer in answers])
        if len(prompts) < len(answers):
            for layer in self.cache.buffered:
                layer.spread(source)
            self.visible = self.visible[source]
        self._next_tokens(logits[source])

    def step(self) -> None:
        """One token more for every row."""
        chunks = [answer.pending for answer in self.rows]
        starts = [len(answer.prompt) + len(answer.token_ids) - len(answer.pending) for answer in self.rows]
        self._next_tokens(self._read(chunks, starts, num_kept=max(len(chunk) for chunk in chunks)))

    def _read(self, chunks: Sequence[Sequence[int]], starts: Sequence[int], num_kept: int) -> torch.Tensor:
        """Logits [rows, num_kept, vocabulary] after the last columns of the chunks, which are padded on the left."""
        num_new, held = max(len(chunk) for chunk in chunks), self.cache.num_columns
        token_ids = torch.zeros(len(chunks), num_new, dtype=torch.long)
        positions = torch.zeros(len(chunks), num_new, dtype=torch.long)
        if held + num_new > self.visible.shape[1]:
            self.visible = pad(self.visible, (0, max(num_new, held // 2)))
        for row, (chunk, start) in enumerate(zip(chunks, starts, strict=True)):
            token_ids[row, num_new - len(chunk) :] = torch.tensor(chunk)
            positions[row, num_new - len(chunk) :] = torch.arange(start, start + len(chunk))
            self.visible[row, held + num_new - len(chunk) : held + num_new] = True
        mask = visible_to(self.visible[: len(chunks), : held + num_new], num_new)
        return self.policy.forward(token_ids, positions, mask, self.cache, num_kept)

    def _next_tokens(self, logits: torch.Tensor) -> None:
        normaliser = logits.logsumexp(-1)
        for row, answer in enumerate(self.rows):
            # tokens that a grammar forced were read together: their log-probabilities are known only now
            for back in range(len(answer.pending) - 1, 0, -1):
                column = logits.shape[1] - 1 - back
                answer.logprobs.append(float(logits[row, column, answer.pending[-back]] - normaliser[row, column]))
        chosen = choose(logits[:, -1], self.rows)
        logprobs = (logits[:, -1].gather(1, chosen[:, None]).squeeze(1) - normaliser[:, -1]).tolist()
        for row, (answer, token, logprob) in enumerate(zip(self.rows, chosen.tolist(), logprobs, strict=True)):
            first = answer.matcher.start() if answer.matcher and not answer.token_ids else []
            if answer.ends_after_pending:
                answer.finish_reason = answer.ends_after_pending
            elif first:
                self._add(answer, first[0], float(logits[row, -1, first[0]] - normaliser[row, -1]), first[1:])
            else:
                self._add(answer, token, logprob, None)
            if answer.on_tokens:
                answer.on_tokens(answer)
        self._drop_finished()

    def _add(self, answer: Answer, token: int, logprob: float, forced: list[int] | None) -> None:
        answer.token_ids.append(token)
        answer.logprobs.append(logprob)
        if token in self.policy.end_tokens:
            answer.finish_reason = "stop"
            return
        if answer.matcher and forced is None:
            forced = answer.matcher.take(token)
        forced = (forced or [])[: answer.sampling.max_tokens - len(answer.token_ids)]
        answer.pending = [token, *forced]
        answer.token_ids.extend(forced)
        ended = None
        if answer.sampling.stop and (text := self.policy.text_of(answer.token_ids)):
            answer.stop_text = next((stop for stop in answer.sampling.stop if stop in text), None)
        if answer.stop_text is not None or (answer.matcher and answer.matcher.finished):
            ended = "stop"
        elif len(answer.token_ids) >= answer.sampling.max_tokens:
            ended = "length"
        if forced:
            answer.ends_after_pending = ended
        else:
            answer.finish_reason = ended

    def _drop_finished(self) -> None:
        gone = [row for row, answer in enumerate(self.rows) if answer.finish_reason or answer.cancelled]
        for row in gone:
            self.on_finish(self.rows[row])
        num_left = len(self.rows) - len(gone)
        free = [row for row in gone if row < num_left]
        last = [row for row in range(num_left, len(self.rows)) if row not in set(gone)]
        if free and last:
            for layer in self.cache.buffered:
                layer.move(last, free)
            self.visible[free] = self.visible[last]
            for source, target in zip(last, free, strict=True):
                self.rows[target] = self.rows[source]
        del self.rows[num_left:]

    def _shared_beginning(self, prefixes: Prefixes, prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The beginning of all prompts whose keys and values are kept, after keeping it where that pays; empty: none."""
        if len(prompts) > 1:
            common = _shared_beginning(min(prompts), max(prompts))
        else:
            common = max((_shared_beginning(prompts[0], recent) for recent in prefixes.recent), key=len, default=())
        # the last token of a prompt must be read in any case: its logits are what the answer starts from
        common = common[: min(len(prompt) for prompt in prompts) - 1]
        prefixes.recent = [*prefixes.recent, *prompts][-NUM_RECENT_PROMPTS:]
        held = max((kept for kept in prefixes.kept if kept == common[: len(kept)]), key=len, default=())
        if held:
            prefixes.kept.move_to_end(held)
        if len(common) - len(held) < MIN_PREFIX_TOKENS:
            return held
        cache = KeyValues(self.policy.num_layers, 1, len(common))
        if held:
            self._fill(cache, prefixes.kept[held], 1)
        added = torch.tensor([common[len(held) :]])
        positions = torch.arange(len(held), len(common))[None]
        mask = visible_to(torch.ones(1, len(common), dtype=torch.bool), added.shape[1])
        self.policy.forward(added, positions, mask, cache, 1)
        self.policy.keep_prefix(prefixes, common, [layer.prefix(len(common)) for layer in cache.buffered])
        return common if common in prefixes.kept else ()

    @staticmethod
    def _fill(cache: KeyValues, layers: Sequence[tuple[torch.Tensor, torch.Tensor]], num_rows: int) -> None:
        for layer, (keys, values) in zip(cache.buffered, layers, strict=True):
            layer.fill_prefix(keys, values, num_rows)


def choose(logits: torch.Tensor, answers: Sequence[Answer]) -> torch.Tensor:
    """The next token of each row, int64 [rows], from raw logits float32 [rows, vocabulary]."""
    if all(answer.sampling.temperature == 1.0 and answer.sampling.top_p >= 1.0 and not answer.matcher for answer in answers):
        return draw(logits.softmax(-1), torch.tensor([answer.draws.random() for answer in answers], dtype=torch.float64))
    temperature = torch.tensor([answer.sampling.temperature or 1.0 for answer in answers])
    scaled = logits / temperature[:, None]
    for row, answer in enumerate(answers):
        if answer.matcher and not answer.ends_after_pending:
            scaled[row].masked_fill_(~answer.matcher.allowed(), -torch.inf)
    probabilities = scaled.softmax(-1)
    for row, answer in enumerate(answers):
        if answer.sampling.top_p < 1.0:
            ordered, order = probabilities[row].sort(descending=True)
            outside = ordered.cumsum(-1) - ordered >= answer.sampling.top_p
            probabilities[row, order[outside]] = 0.0
    chosen = draw(probabilities, torch.tensor([answer.draws.random() for answer in answers], dtype=torch.float64))
    greedy = torch.tensor([answer.sampling.temperature == 0 for answer in answers])
    return torch.where(greedy, scaled.argmax(-1), chosen)


def draw(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Tokens int64 [rows] by inverting the cumulative distribution at `uniforms` float64 [rows] in [0, 1).

    `probabilities` float32 [rows, vocabulary] need not sum to 1; a token of probability 0 is never drawn. Sums are taken
    in float64, first over blocks, then inside the block that holds the answer.
    """
    rows, vocabulary = probabilities.shape
    blocks = pad(probabilities, (0, -vocabulary % _BLOCK)).view(rows, -1, _BLOCK)
    up_to = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniforms * up_to[:, -1]
    block = (up_to <= target[:, None]).sum(-1).clamp(max=up_to.shape[1] - 1)
    before = torch.where(block > 0, up_to.gather(1, (block - 1).clamp(min=0)[:, None]).squeeze(1), 0.0)
    inside = blocks[torch.arange(rows), block].double()
    place = (inside.cumsum(-1) <= (target - before)[:, None]).sum(-1)
    last = _BLOCK - 1 - (inside.flip(-1) > 0).int().argmax(-1)  # rounding may carry the place one past the block's end
    return block * _BLOCK + torch.minimum(place, last)


def _shared_beginning(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    length = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]
