"""Token ids of a redacted call: the ids of a secret become those of its token, wherever that can be done exactly.

Redaction alone sets a call's ids and logprobs to null. Here they come back, if three things hold: secrets were replaced in
the contents of messages and nowhere else; the ids, spelled out by the base model's tokenizer, hold every content of the
prompt literally and in order, and are the answer's content; and what comes out spells the redacted text and no secret.
Tokens of the answer that overlap a secret lose their logprobs and stand in `redacted_spans` ([start, end) in `token_ids`):
nobody sampled them, and no batch trains on them (I7). Where anything does not hold, the ids stay null.

The other logprobs are stored as they were logged, under the text that held the secret; the parser does not hand them on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.doors.tokenizer import Spelling
from pipelines.landing.redaction import Redactor, token

_LISTS = ("prompt_token_ids", "token_ids", "logprobs")
TOKEN = re.compile(r"\[redacted:([a-z0-9_]+):[0-9a-f]{12}\]")
"""What stands for a secret in redacted text; group 1 is the rule."""
_MOST_SECRETS = 100


class _NotExactError(Exception):
    """The ids cannot be told apart exactly; they stay null."""


@dataclass(frozen=True)
class _Span:
    start: int
    """Byte offsets."""
    end: int
    token: str
    secret: bytes


def with_token_ids(original: Any, redacted: Any, redactor: Redactor, tokenizer: Callable[[], Spelling | None]) -> Any:
    """The redacted call with its ids and logprobs where that is exact, else as it is. `tokenizer` is asked only when needed."""
    if not isinstance(original, dict) or not isinstance(original.get("prompt_token_ids"), list) or not original.get("token_ids"):
        return redacted
    if original.get("redacted_spans"):  # stored before, with ids that were replaced then
        return redacted
    try:
        if _frame(original) != _frame(redacted) or (spelling := tokenizer()) is None:
            return redacted
        return {**redacted, **_lists(original, redacted, redactor, spelling)}
    except (_NotExactError, KeyError, TypeError, AttributeError, UnicodeDecodeError, OverflowError):
        return redacted


def _lists(original: dict[str, Any], redacted: dict[str, Any], redactor: Redactor, spelling: Spelling) -> dict[str, Any]:
    asked: list[tuple[Any, Any]] = [
        (before["content"], after["content"]) for before, after in zip(_asked(original), _asked(redacted), strict=True)
    ]
    answer: tuple[Any, Any] = (_answer(original).get("content"), _answer(redacted).get("content"))
    contents = [pair for pair in (*asked, answer) if isinstance(pair[0], str) and pair[0] != pair[1]]
    secrets = {span.secret for before, after in contents for span in _spans(before, after, redactor.key)}

    prompt_ids, sampled_ids, logprobs = (original[name] for name in _LISTS)
    if logprobs is not None and len(logprobs) != len(sampled_ids):
        raise _NotExactError
    prompt, sampled = spelling.pieces(prompt_ids), spelling.pieces(sampled_ids)
    if prompt is None or sampled is None:
        raise _NotExactError
    spelled, cursor, spans = b"".join(prompt), 0, []
    for before, after in asked:
        if isinstance(before, str) and before:
            at = spelled.find(before.encode(), cursor)
            if at < 0:
                raise _NotExactError
            spans += [_Span(at + s.start, at + s.end, s.token, s.secret) for s in _spans(before, after, redactor.key)]
            cursor = at + len(before.encode())
    new_prompt, _ = _replaced(prompt_ids, prompt, spans, spelling)

    ended = len(sampled)
    while ended and spelling.added(sampled_ids[ended - 1]):
        ended -= 1
    spans = []
    if answer[0] != answer[1]:
        if b"".join(sampled[:ended]) != answer[0].encode():
            raise _NotExactError
        spans = _spans(*answer, redactor.key)
    new_sampled, regions = _replaced(sampled_ids, sampled, spans, spelling)
    for ids in (new_prompt, new_sampled):
        _check_clean(spelling.pieces(ids), secrets, redactor)
    found: dict[str, Any] = {"prompt_token_ids": new_prompt, "token_ids": new_sampled, "logprobs": None}
    if logprobs is not None:
        found["logprobs"] = _without(logprobs, regions)
    if regions:
        found["redacted_spans"] = [[start, start + length] for _, _, start, length in regions]
    return found


def _replaced(
    ids: Sequence[int], pieces: Sequence[bytes], spans: Sequence[_Span], spelling: Spelling
) -> tuple[list[int], list[tuple[int, int, int, int]]]:
    """New ids, and per replaced stretch: first and end in the old ids, start and length in the new."""
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece))
    stretches: list[list[Any]] = []
    for span in spans:
        first = next(place for place in range(len(pieces)) if starts[place + 1] > span.start)
        end = next(place for place in range(first, len(pieces)) if starts[place + 1] >= span.end) + 1
        if stretches and first < stretches[-1][1]:  # two secrets in one token
            stretches[-1][1] = max(end, stretches[-1][1])
            stretches[-1][2].append(span)
        else:
            stretches.append([first, end, [span]])
    new: list[int] = []
    regions: list[tuple[int, int, int, int]] = []
    done = 0
    for first, end, inside in stretches:
        if any(spelling.added(number) for number in ids[first:end]):
            raise _NotExactError
        text, offset = b"".join(pieces[first:end]), starts[first]
        for span in reversed(inside):
            text = text[: span.start - offset] + span.token.encode() + text[span.end - offset :]
        new += ids[done:first]
        fresh = spelling.ids(text.decode())
        if b"".join(spelling.pieces(fresh) or ()) != text:
            raise _NotExactError
        regions.append((first, end, len(new), len(fresh)))
        new += fresh
        done = end
    return [*new, *ids[done:]], regions


def _without(logprobs: Sequence[Any], regions: Sequence[tuple[int, int, int, int]]) -> list[Any]:
    new: list[Any] = []
    done = 0
    for first, end, _, length in regions:
        new += [*logprobs[done:first], *[None] * length]
        done = end
    return [*new, *logprobs[done:]]


def _check_clean(pieces: Sequence[bytes] | None, secrets: set[bytes], redactor: Redactor) -> None:
    text = b"".join(pieces or ())
    again = Redactor(redactor.key, redactor.rules)
    again.text(text.decode("utf-8", "replace"))
    if pieces is None or again.counts.total() or any(secret in text for secret in secrets):
        raise _NotExactError


def _spans(before: str, after: str, key: bytes) -> list[_Span]:
    """Where the secrets stood that tokens stand for now; each is held against its token."""
    if before == after:
        return []
    tokens = list(TOKEN.finditer(after))
    if len(tokens) > _MOST_SECRETS:
        raise _NotExactError
    edges = [0, *(edge for found in tokens for edge in found.span()), len(after)]
    literals = [after[edges[place] : edges[place + 1]] for place in range(0, len(edges), 2)]
    aligned = re.fullmatch("(.+?)".join(re.escape(literal) for literal in literals), before, re.DOTALL)
    if aligned is None:
        raise _NotExactError
    spans = []
    for number, found in enumerate(tokens, 1):
        secret = aligned[number]
        if secret == found[0]:  # redacted before it was logged
            continue
        if token(key, found[1], secret) != found[0]:
            raise _NotExactError
        start, end = (len(before[:edge].encode()) for edge in aligned.span(number))
        spans.append(_Span(start, end, found[0], secret.encode()))
    return spans


def _frame(call: dict[str, Any]) -> dict[str, Any]:
    """A call without its ids and the contents of its messages."""
    answer = _answer(call)
    return {
        **{name: value for name, value in call.items() if name not in _LISTS},
        "request": {**call["request"], "messages": [_blank(message) for message in _asked(call)]},
        "response": None if not answer else {**call["response"], "message": _blank(answer)},
    }


def _blank(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": None} if isinstance(message.get("content"), str) else message


def _asked(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"content": None, **message} for message in call["request"]["messages"]]


def _answer(call: dict[str, Any]) -> dict[str, Any]:
    return (call.get("response") or {}).get("message") or {}
