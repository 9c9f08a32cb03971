"""Format `inspect_ai`: logs of Inspect AI, as one .json document or as an .eval archive.

{eval, status, samples[]}; an .eval is a zip with header.json and samples/<id>_epoch_<n>.json, read member by member. A record
is one sample with what its log says of the evaluation: task, model, scorers. The task is named by evaluation and sample
id; the epochs of a sample are its attempts. A log that is written again as it goes on holds the same samples; one that was
scored again holds other versions, of which the one with most scores and edits counts.

- Long texts and images are replaced by `attachment://<hash>`; they are put back when a sample is spelled. Events keep
  their inputs in a pool beside them; the messages of the sample itself are whole.
- An assistant's message is sampled unless it says that it came from the input (`source`) or stands in the input.
- Scores are letters (C, P, I, N), truth values, numbers or objects. The outcome is the only scorer's, of several that
  which the evaluation declares first; an object of several numbers is none. Scores that could not be made are NaN.
- A sample with an error is a fault of its run, one that an operator stopped was aborted; one that reached a limit of
  messages, tokens, time or cost did so itself.
- Logs without samples hold no records.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_items
from pipelines.landing.eval_archive import ZIP, decoded, evaluation_of, member, place
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import moment
from pipelines.landing.pieces import bad, cut_file, made
from pipelines.landing.shapes import check, count, mapping, named, number, objects, readable, text

ATTACHMENT = "attachment://"
KEPT_OF_EVAL = ("task", "task_id", "task_version", "eval_id", "run_id", "created", "model", "scorers", "task_args")
"""Of what a log says of its evaluation, that which is the same however far it has come."""

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class InspectAi:
    """The format; see LogFormat."""

    name = "inspect_ai"
    parser_version = 1
    what = "Inspect AI logs (.json and .eval)"
    gives = frozenset({"task_id", "outcome", "model", "times"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """An archive that begins with a log's members, or a document with an evaluation of a task by a model."""
        if head.raw.startswith(ZIP):
            first = head.raw[30 : 30 + int.from_bytes(head.raw[26:28], "little")]
            return first in (b"_journal/start.json", b"header.json") or first.startswith(b"samples/")
        return {"task", "model", "run_id"} <= mapping(head.object.get("eval")).keys()

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per sample; those of an archive in the order of their bytes, `line` being their number."""
        with path.open("rb") as stream:
            packed = stream.read(4) == ZIP
        if packed:
            return self._members(path, start)
        return split_items(path, start, "samples", self._facts, decoded=decoded, missing_is_empty=True)

    def spell(self, value: Any) -> Spelled:
        """The sample's messages with their attachments."""
        sample = value["sample"]
        task, name = text(value["eval"].get("task")), named(sample["id"])
        return Spelled(turns=_turns(sample), tools=_tools(sample), task_id=f"{task}/{name}" if task and name else name)

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return self._facts(value["sample"], value)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one sample in one epoch, by its best scored version."""
        best = max(records, key=_order)
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: ("", "superseded") for record in records if record is not best
        }
        evaluation, sample = best.value["eval"], best.value["sample"]
        model = text(evaluation.get("model"))
        usage = mapping(mapping(sample.get("model_usage")).get(model or ""))
        fault = _fault(sample)
        scorer, outcome = _score(evaluation, sample) if fault is None else (None, None)
        begin, end = _times(sample)
        attempt = Attempt(
            record_ids=[best.record_id],
            turns=best.spelled.turns,
            calls=[call_entry() for turn in best.spelled.turns if turn["sampled"]],
            task_id=best.spelled.task_id,
            attempt=count(sample.get("epoch")),
            model=model,
            tools=best.spelled.tools,
            outcome=outcome,
            outcome_source=None if outcome is None else f"scores.{scorer}",
            fault=fault,
            started_at=begin,
            ended_at=end,
            num_prompt_tokens=_sum(usage, "input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
            num_reply_tokens=_sum(usage, "output_tokens"),
            cost_usd=number(usage.get("total_cost")),
        )
        return Bundle(attempts=[attempt], left=left)

    def _members(self, path: Path, start: int) -> Iterator[Piece]:
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile:  # its directory is written last
            yield cut_file(path, "an archive without its directory")
            return
        with archive, path.open("rb") as stream:
            around = {"eval": evaluation_of(archive, stream)}
            latest = {entry.filename: entry for entry in archive.infolist() if entry.filename.startswith("samples/")}
            for line, entry in enumerate(sorted(latest.values(), key=lambda entry: entry.header_offset), start=1):
                begin, end = place(entry, stream)
                if end <= start:
                    continue
                raw = b""
                try:
                    raw = member(archive, entry, stream)
                    value, _ = decoded(raw)
                    yield made(self._facts(value, around), value, line=line, begin=begin, end=end)
                except BadPieceError as problem:
                    refused = bad(raw, line, begin, problem)
                    yield type(refused)(
                        line=line, byte_start=begin, byte_end=end, reason=problem.reason, detail=problem.detail, raw=raw
                    )

    def _facts(self, value: Any, around: dict[str, Any]) -> Facts:
        check(isinstance(value, dict), "no object")
        check(named(value.get("id")) is not None, "id names nothing")
        check(isinstance(value.get("messages"), list), "messages is no list")
        evaluation = mapping(around.get("eval"))
        kept = {"eval": {name: evaluation[name] for name in KEPT_OF_EVAL if name in evaluation}, "sample": value}
        readable(self.spell, kept)
        ref = text(value.get("uuid"))
        if ref is None:
            own = [evaluation.get(name) for name in ("run_id", "task_id", "created")]
            ref = orjson.dumps([*own, value["id"], value.get("epoch")]).decode()
        return Facts(bundle_ref=ref, time=_times(value)[1] or moment(evaluation.get("created")), value=kept)


def _turns(sample: dict[str, Any]) -> list[dict[str, Any]]:
    attachments = mapping(sample.get("attachments"))
    given = objects(sample.get("input"))
    asked = {orjson.dumps(message.get("content")) for message in given if message.get("role") == "assistant"}
    turns: list[dict[str, Any]] = []
    num_calls = 0
    for message in sample["messages"]:
        source = message.get("source")
        own = source == "generate" or (source is None and orjson.dumps(message.get("content")) not in asked)
        sampled = message["role"] == "assistant" and own
        turns.append(uniform(_chat(message, attachments), call=num_calls if sampled else None))
        num_calls += sampled
    return turns


def _chat(message: dict[str, Any], attachments: dict[str, Any]) -> dict[str, Any]:
    """An Inspect message as an OpenAI one."""
    role, content = message["role"], _resolved(message.get("content"), attachments)
    if not isinstance(role, str) or not (content is None or isinstance(content, str | list)):
        raise TypeError("a message has no role, or content that is neither text nor parts")
    chat: dict[str, Any] = {"role": role, "content": content}
    if isinstance(content, list):
        thoughts = [
            text(part.get("summary")) if part.get("redacted") else text(part.get("reasoning"))
            for part in objects(content)
            if part.get("type") == "reasoning"
        ]
        chat["reasoning"] = "\n".join(thought for thought in thoughts if thought) or None
        parts = [part for part in objects(content) if part.get("type") != "reasoning"]
        chat["content"] = [
            {"type": "text", "text": part.get("text") or ""} if part.get("type") == "text" else part for part in parts
        ]
    if role == "assistant":
        calls = objects(_resolved(message.get("tool_calls"), attachments))
        chat["tool_calls"] = [
            {"id": call.get("id"), "function": {"name": call.get("function"), "arguments": call.get("arguments")}}
            for call in calls
        ]
    if role == "tool":
        chat["tool_call_id"], chat["name"] = text(message.get("tool_call_id")), text(message.get("function"))
        if not content:
            chat["content"] = text(mapping(message.get("error")).get("message"))
    return chat


def _resolved(value: Any, attachments: dict[str, Any]) -> Any:
    """The value with every attachment put back where its hash stands."""
    if isinstance(value, str):
        if ATTACHMENT not in value:
            return value
        whole = attachments.get(value.removeprefix(ATTACHMENT)) if value.startswith(ATTACHMENT) else None
        return whole if isinstance(whole, str) else value
    if isinstance(value, list):
        return [_resolved(item, attachments) for item in value]
    if isinstance(value, dict):
        return {name: _resolved(item, attachments) for name, item in value.items()}
    return value


def _events(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """Oldest logs keep them in a transcript."""
    return objects(sample.get("events")) or objects(mapping(sample.get("transcript")).get("events"))


def _tools(sample: dict[str, Any]) -> list[Any] | None:
    """Tool schema of the first generation."""
    for event in _events(sample):
        if event.get("event") == "model":
            tools = objects(_resolved(event.get("tools"), mapping(sample.get("attachments"))))
            return [{"type": "function", "function": tool} for tool in tools] or None
    return None


def _times(sample: dict[str, Any]) -> tuple[Any, Any]:
    logged = [time for event in _events(sample) if (time := moment(event.get("timestamp"))) is not None]
    begin = moment(sample.get("started_at")) or min(logged, default=None)
    return begin, moment(sample.get("completed_at")) or max(logged, default=None)


def _order(record: StoredRecord) -> tuple[Any, ...]:
    sample = record.value["sample"]
    scores = [mapping(score) for score in mapping(sample.get("scores")).values()]
    edits = sum(len(objects(score.get("history"))) for score in scores)
    return len(scores), edits, len(record.spelled.turns), str(sample.get("completed_at")), record.record_id


def _score(evaluation: dict[str, Any], sample: dict[str, Any]) -> tuple[str | None, float | None]:
    """The scorer whose score is the outcome, and that."""
    scores = mapping(sample.get("scores"))
    if not scores and isinstance(sample.get("score"), dict):  # before there could be several
        scores = {"score": sample["score"]}
    declared = [text(scorer.get("name")) for scorer in objects(evaluation.get("scorers"))]
    scorer = next(iter(scores)) if len(scores) == 1 else next((name for name in declared if name in scores), None)
    return (None, None) if scorer is None else (scorer, _value(mapping(scores[scorer]).get("value")))


def _value(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, dict) and len(value) == 1:
        return _value(next(iter(value.values())))
    if not isinstance(value, str):
        return number(value)
    if value in LETTERS:
        return LETTERS[value]
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        return read if math.isfinite(read := float(value)) else None
    except ValueError:
        return None


def _fault(sample: dict[str, Any]) -> str | None:
    if sample.get("error") is not None or sample.get("invalidation") is not None:
        return "harness_error"
    return "aborted" if mapping(sample.get("limit")).get("type") == "operator" else None


def _sum(usage: dict[str, Any], *names: str) -> int | None:
    counts = [counted for name in names if (counted := count(usage.get(name))) is not None]
    return sum(counts) if counts else None
