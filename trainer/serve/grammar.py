"""Replies that must be JSON of a schema: which tokens may come next, and which must."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import llguidance.hf
import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from trainer.contract import NightshiftError


class SchemaRefusedError(NightshiftError):
    """A JSON schema that cannot be made into a grammar."""


class Grammars:
    """Makes matchers for one tokenizer."""

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        """Number of logits, which may be above the number of tokens."""
        self._tokenizer: LLTokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary)
        self._compiled = lru_cache(maxsize=64)(self._compile)

    def matcher(self, schema: dict[str, Any]) -> Matcher:
        """A matcher at the start of a reply; SchemaRefusedError says what the schema asks that cannot be had."""
        return Matcher(self._compiled(json.dumps(schema)).deep_copy(), self.vocabulary)

    def _compile(self, schema: str) -> LLMatcher:
        # no free white space: it lengthens replies, small models lose themselves in it, and what is fixed need not be sampled
        grammar = LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
        matcher = LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise SchemaRefusedError(f"response_format: {matcher.get_error().splitlines()[0]}")
        return matcher


class Matcher:
    """Where one reply stands in its grammar."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._bits = allocate_token_bitmask(1, vocabulary)
        self._vocabulary = vocabulary

    def allowed(self) -> torch.Tensor:
        """Which tokens may come next, bool [vocabulary]."""
        fill_next_token_bitmask(self._matcher, self._bits)
        bits = np.unpackbits(self._bits.view(np.uint8)[0], bitorder="little")
        return torch.from_numpy(bits[: self._vocabulary].astype(bool))

    def take(self, token: int) -> list[int]:
        """Go on by a sampled token; returns the tokens that must follow, already taken."""
        if not self._matcher.consume_token(token):
            raise NightshiftError(f"the grammar does not allow token {token}: {self._matcher.get_error()}")
        forced = self._matcher.compute_ff_tokens()
        if forced and not self._matcher.consume_tokens(forced):
            raise NightshiftError(f"the grammar does not allow its own tokens: {self._matcher.get_error()}")
        return forced

    def start(self) -> list[int]:
        """Tokens that every reply starts with, already taken."""
        forced = self._matcher.compute_ff_tokens()
        if forced:
            self._matcher.consume_tokens(forced)
        return forced

    @property
    def finished(self) -> bool:
        """Nothing but the end may follow."""
        return self._matcher.is_stopped()
