"""From the spans of a trace to attempts.

Only calls of a model make turns. The calls below one agent (or below a tool that asks a model itself) belong together, with
those of equally named agents under the same parent, since frameworks start an agent anew for each message; `chains` finds
the attempts among them. An agent below another's tool call is a subagent: an attempt of its own, linked to the call that
started it. All other spans repeat what calls hold: they tell names, nesting, scores and faults, and are left as `view`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from pipelines.landing.format import Attempt, Bundle, call_entry
from pipelines.landing.spans import LoggedSpan, Score, Span
from pipelines.landing.stitching import Chain, LoggedCall, attempt_of, chains

Key = tuple[str, ...]
"""Names of the owners of some calls, outermost first."""

OUTCOME_RANGE = (0.0, 1.0)


def bundle_of(spans: Iterable[LoggedSpan]) -> Bundle:
    """The attempts of one trace."""
    return _Tree(list(spans)).bundle()


class _Tree:
    def __init__(self, logged: Sequence[LoggedSpan]) -> None:
        self.superseded: list[tuple[LoggedSpan, LoggedSpan]] = []
        """Earlier states of a span, each with the one that counts."""
        self.spans: dict[tuple[bool, str], LoggedSpan] = {}
        for one in sorted(logged, key=_newest, reverse=True):
            key = (one.span.kind == "trace", one.span.span_id)
            if key in self.spans:
                self.superseded.append((one, self.spans[key]))
            else:
                self.spans[key] = one
        self.by_id = {one.span.span_id: one for one in self.spans.values() if one.span.kind != "trace"}
        self.calls = [one for one in self.by_id.values() if one.span.kind == "call" and (one.request or one.answers)]
        self.owned = {owners[0].span_id for one in self.calls if (owners := self._owners(one.span))}
        self.groups: dict[Key, list[LoggedSpan]] = {}
        for one in sorted(self.calls, key=lambda one: one.span.span_id):
            self.groups.setdefault(self._key(one.span), []).append(one)
        self.found: list[tuple[Key, Chain]] = []
        for key, calls in sorted(self.groups.items()):
            answers = [answer for one in calls for answer in one.answers]
            self.found += [(key, chain) for chain in chains([call for one in calls for call in _logged_calls(one, answers)])]
        self.chain_of = {call.call_id: chain for _, chain in reversed(self.found) for call in reversed(chain.own)}

    def bundle(self) -> Bundle:
        attempts = [self._attempt(key, chain) for key, chain in self.found]
        roots = [attempt for attempt in attempts if attempt.link is None]
        left: dict[str, tuple[str | None, str]] = {}
        for one in self.spans.values():
            if one.span.kind == "call" and one.span.span_id in self.chain_of:
                continue
            ref = (roots[0].ref if len(roots) == 1 else None) if one.span.kind == "trace" else self._stands_for(one.span)
            left.update({record.record_id: (ref, "duplicate_view") for record in one.records})
        for older, newer in self.superseded:
            standing = self.chain_of.get(newer.span.span_id)
            ref = standing.ref if standing is not None else self._stands_for(newer.span)
            left.update({record.record_id: (ref, "superseded") for record in older.records})
        placed = {record_id for attempt in attempts for record_id in attempt.record_ids}
        return Bundle(attempts=attempts, left={key: value for key, value in left.items() if key not in placed})

    def _attempt(self, key: Key, chain: Chain) -> Attempt:
        own = [self.by_id[call.call_id or ""].span for call in chain.own]
        around = {span.span_id: span for one in own for span in self._ancestors(one)}
        facts: dict[str, Any] = {
            "harness": next((span.harness for span in own if span.harness), None),
            "task_id": next((span.task_id for span in (*own, *around.values()) if span.task_id), None),
        }
        if chain.parent is None and (link := self._started_by(own[0])) is not None:
            facts |= link
        if (fault := self._fault(chain, own[0])) is not None:
            facts["fault"] = fault
        elif (score := self._score(chain, own, key)) is not None:
            facts |= {"outcome": score.value, "outcome_range": OUTCOME_RANGE, "outcome_source": f"scores.{score.name}"}
        return attempt_of(chain, **facts)

    def _fault(self, chain: Chain, first: Span) -> str | None:
        """Of its last call, else of its agent or of the trace's root."""
        if chain.last.fault is not None or chain.parent is not None:
            return chain.last.fault
        owners = [span for span in self._owners(first)[:1] if span.kind == "agent"]
        ancestors = self._ancestors(first)
        return next((span.fault for span in (*owners, *ancestors[-1:]) if span.fault is not None), None)

    def _score(self, chain: Chain, own: Sequence[Span], key: Key) -> Score | None:
        """The only score of its spans, or of the trace where this is the only attempt that nothing started."""
        named = {span.span_id for span in own} | {span.span_id for one in own for span in self._owners(one)[:1]}
        is_root = chain.parent is None and self._started_by(own[0]) is None
        alone = is_root and sum(1 for _, other in self.found if other.parent is None and not self._is_started(other)) == 1
        ancestors = {span.span_id for one in own for span in self._ancestors(one)} if alone else set[str]()
        scores = {
            (score.name, score.value, score.span_id): score
            for one in self.spans.values()
            for score in one.span.scores
            if score.span_id in named or (alone and (score.span_id is None or score.span_id in ancestors))
        }
        return next(iter(scores.values())) if len(scores) == 1 else None

    def _is_started(self, chain: Chain) -> bool:
        return self._started_by(self.by_id[chain.own[0].call_id or ""].span) is not None

    def _started_by(self, first: Span) -> dict[str, Any] | None:
        """The link of a subagent whose first call is this; None where it is none."""
        owners = self._owners(first)
        if not owners:
            return None
        above = next((number for number, span in enumerate(owners) if number > 0 and span.span_id in self.owned), None)
        between = owners[: len(owners) if above is None else above]
        tool = next((span for span in between if span.kind == "tool"), None)
        if above is None and (tool is None or () not in self.groups):
            return None
        parents = self.groups[() if above is None else self._key_of(owners[above:])]
        call, tool_call_id = _caller(parents, tool, owners[0])
        if call is None:
            return {"link": "subagent"}
        return {"link": "subagent", "parent_ref": self.chain_of[call.span_id].ref, "parent_tool_call_id": tool_call_id}

    def _stands_for(self, span: Span) -> str | None:
        """The first attempt among the calls below a span, else that of its owner."""
        below = [one.span for one in self.calls if span.span_id in (above.span_id for above in self._ancestors(one.span))]
        if not below:
            owners = [owner for owner in self._owners(span) if owner.span_id in self.owned]
            key = self._key_of(owners) if owners else ()
            below = [one.span for one in self.groups.get(key, ())]
        first = min(below, key=_started, default=None)
        return None if first is None else self.chain_of[first.span_id].ref

    def _ancestors(self, span: Span) -> list[Span]:
        found: list[Span] = []
        seen = {span.span_id}
        while (above := self.by_id.get(span.parent_id or "")) is not None and above.span.span_id not in seen:
            seen.add(above.span.span_id)
            found.append(above.span)
            span = above.span
        return found

    def _owners(self, span: Span) -> list[Span]:
        return [above for above in self._ancestors(span) if above.kind in ("agent", "tool")]

    def _key(self, call: Span) -> Key:
        return self._key_of(self._owners(call))

    def _key_of(self, owners: Sequence[Span]) -> Key:
        return tuple(f"{span.kind} {span.name}" for span in reversed(owners) if span.span_id in self.owned)


def _caller(parents: Sequence[LoggedSpan], tool: Span | None, started: Span) -> tuple[Span | None, str | None]:
    """The call among `parents` whose answer started a tool (or an agent), and the id of its tool call."""
    known = sorted(parents, key=lambda one: _started(one.span), reverse=True)
    before = [one for one in known if _started(one.span) <= _started(started)] or known
    if tool is not None:
        for same in (_same_id, _same_arguments, _same_name):
            for one in before:
                for answer in one.answers:
                    for tool_call in answer.get("tool_calls") or ():
                        if same(tool, tool_call):
                            return one.span, tool_call["id"]
    return (before[0].span if before else None), tool.tool_call_id if tool is not None else None


def _same_id(tool: Span, tool_call: dict[str, Any]) -> bool:
    return tool.tool_call_id is not None and tool.tool_call_id == tool_call["id"]


def _same_name(tool: Span, tool_call: dict[str, Any]) -> bool:
    return tool.tool_call_id is None and (tool.tool_name or tool.name) == tool_call["function"]["name"]


def _same_arguments(tool: Span, tool_call: dict[str, Any]) -> bool:
    if not _same_name(tool, tool_call):
        return False
    try:
        return orjson.loads(tool_call["function"]["arguments"]) == tool.tool_arguments
    except orjson.JSONDecodeError:
        return False


def _together(request: list[dict[str, Any]], answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A request in which the parallel calls of one answer stand together again, as they were answered.

    Some frameworks (Koog) send each of them back as a message of its own with its result behind it. The ids of the calls
    tell that they are the same.
    """
    several = {
        calls[0]["id"]: answer for answer in answers if len(calls := answer.get("tool_calls") or ()) > 1 and calls[0]["id"]
    }
    turns: list[dict[str, Any]] = []
    position = 0
    while position < len(request):
        calls = request[position].get("tool_calls") or ()
        answer = several.get(calls[0]["id"]) if len(calls) == 1 else None
        if answer is None:
            turns.append(request[position])
            position += 1
            continue
        waiting = [call["id"] for call in answer["tool_calls"]]
        results: list[dict[str, Any]] = []
        end, called = position, None
        while end < len(request) and request[end]["role"] in ("assistant", "tool"):
            turn = request[end]
            if turn["role"] == "tool":
                results.append({**turn, "tool_call_id": turn.get("tool_call_id") or called})
            elif len(calls := turn.get("tool_calls") or ()) == 1 and calls[0]["id"] in waiting:
                called = calls[0]["id"]
                waiting.remove(called)
            else:
                break
            end += 1
        turns += request[position : position + 1] if waiting else [answer, *results]
        position = position + 1 if waiting else end
    return turns


def _logged_calls(one: LoggedSpan, answers: Sequence[dict[str, Any]]) -> list[LoggedCall]:
    span = one.span
    prompt = _together(one.request, answers)
    numbered: list[tuple[int, dict[str, Any] | None]] = [*enumerate(one.answers)] or [(0, None)]
    alone = len(numbered) == 1  # usage is of all choices together: it cannot be told apart
    return [
        LoggedCall(
            record_ids=[record.record_id for record in one.records],
            prompt=prompt,
            answer=answer,
            call_id=span.span_id,
            choice=choice,
            entry=call_entry(
                call_id=span.span_id, finish_reason=span.answers[choice].get("finish_reason") if answer is not None else None
            ),
            tools=span.tools,
            model=span.model,
            started_at=span.started_at,
            ended_at=span.ended_at,
            num_prompt_tokens=span.num_prompt_tokens,
            num_reply_tokens=span.num_reply_tokens if alone else None,
            cost_usd=span.cost_usd if alone else None,
            fault=span.fault,
        )
        for choice, answer in numbered
    ]


def _started(span: Span) -> tuple[float, str]:
    time: datetime.datetime | None = span.started_at or span.ended_at
    return (time.timestamp() if time is not None else 0.0, span.span_id)


def _newest(one: LoggedSpan) -> tuple[Any, ...]:
    """Of two states of a span the later one, then the one that says more, then the greater id."""
    span = one.span
    ended = span.ended_at.timestamp() if span.ended_at is not None else 0.0
    return (span.revision, ended, len(one.request) + len(one.answers), min(record.record_id for record in one.records))
