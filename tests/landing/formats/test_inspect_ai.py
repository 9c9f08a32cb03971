"""Inspect AI logs."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.landing.format import Attempt, BadRecord, SourceRecord, Unfinished
from pipelines.landing.inspect_ai import InspectAi
from tests.landing.formats.whole_files import read, read_folder, refused, shape, split
from tests.landing.lines import stored

EVAL = {
    "run_id": "run-1",
    "created": "2026-03-05T10:00:00+00:00",
    "task": "sums",
    "task_id": "task-1",
    "model": "openai/gpt-4o",
    "dataset": {"samples": 2},
    "config": {"epochs": 2},
}


def sample(number: int = 1, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    call = {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}
    tool = {"name": "bash", "parameters": {"type": "object"}}
    return {
        "id": number,
        "epoch": epoch,
        "input": "What is 1 + 1?",
        "target": "2",
        "messages": [
            {"role": "system", "content": "attachment://aa"},
            {"role": "user", "content": "What is 1 + 1?", "source": "input"},
            {"role": "assistant", "content": "", "source": "generate", "tool_calls": [call]},
            {
                "role": "tool",
                "content": "",
                "tool_call_id": "c1",
                "function": "bash",
                "error": {"type": "timeout", "message": "late"},
            },
            {
                "role": "assistant",
                "source": "generate",
                "content": [{"type": "reasoning", "reasoning": "Easy."}, {"type": "text", "text": "2"}],
            },
        ],
        "output": {"model": "gpt-4o", "choices": []},
        "scores": {"match": {"value": "C", "answer": "2"}},
        "events": [
            {"event": "sample_init", "timestamp": "2026-03-05T10:00:01Z"},
            {"event": "model", "timestamp": "2026-03-05T10:00:05Z", "tools": [tool]},
        ],
        "model_usage": {"openai/gpt-4o": {"input_tokens": 20, "output_tokens": 4, "input_tokens_cache_read": 5}},
        "attachments": {"aa": "Be brief."},
        "uuid": f"uuid-{number}-{epoch}",
        **changes,
    }


def log(*samples: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"version": 2, "status": "success", "eval": EVAL, "plan": {}, "samples": list(samples) or [sample()], **changes}


def archive(*samples: dict[str, Any], last: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as found:
        found.writestr("_journal/start.json", json.dumps({"version": 2, "eval": EVAL}))
        for value in samples:
            found.writestr(f"samples/{value['id']}_epoch_{value['epoch']}.json", json.dumps(value))
        if last:
            found.writestr("samples/odd name ☃_epoch_1.json", last)
        found.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": EVAL}))
    return packed.getvalue()


FORMAT = InspectAi()
FILES = [json.dumps(log()).encode(), json.dumps(log(), indent=2).encode()[:600], archive(sample()), archive(sample())[:300]]
FOLDERS = {"inspect_ai"}


def attempt_of(**changes: Any) -> Attempt:
    value = {"eval": EVAL, "sample": sample(**changes)}
    (attempt,) = FORMAT.attempts(stored(FORMAT, value)).attempts
    return attempt


def test_a_sample_is_an_attempt_with_its_attachments_put_back() -> None:
    attempt = attempt_of()
    assert shape(attempt) == "suAtA"
    assert attempt.turns[0]["content"] == "Be brief."
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd":"ls"}'}
    assert (attempt.turns[3]["content"], attempt.turns[3]["tool_call_id"], attempt.turns[3]["name"]) == ("late", "c1", "bash")
    assert (attempt.turns[4]["content"], attempt.turns[4]["reasoning"]) == ("2", "Easy.")
    assert (attempt.task_id, attempt.attempt, attempt.model) == ("sums/1", 1, "openai/gpt-4o")
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (1.0, "scores.match", None)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (25, 4)
    assert attempt.tools == [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    assert attempt.ended_at is not None and attempt.ended_at.isoformat() == "2026-03-05T10:00:05+00:00"


def test_images_stay_parts_with_their_data() -> None:
    picture = [{"type": "text", "text": "What is it?"}, {"type": "image", "image": "attachment://bb"}]
    attempt = attempt_of(messages=[{"role": "user", "content": picture}], attachments={"bb": "data:image/png;base64,AA"})
    assert attempt.turns[0]["content"][1] == {"type": "image", "image": "data:image/png;base64,AA"}


def test_messages_of_the_input_are_not_sampled() -> None:
    given = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "An example."}]
    made = [*given, {"role": "user", "content": "R"}, {"role": "assistant", "content": "Own."}]
    assert shape(attempt_of(input=given, messages=made)) == "uauA"
    made[1] = {**made[1], "source": "input"}
    assert shape(attempt_of(input="Q", messages=made)) == "uauA"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        (True, 1.0),
        (0.25, 0.25),
        ("0.5", 0.5),
        ("no", 0.0),
        ("nan", None),
        ("excellent", None),
        (None, None),
        ([1, 0], None),
        ({"only": "C"}, 1.0),
        ({"a": 1, "b": 0}, None),
    ],
)
def test_what_a_score_is_worth(value: Any, outcome: float | None) -> None:
    attempt = attempt_of(scores={"match": {"value": value}})
    assert (attempt.outcome, attempt.outcome_source) == (outcome, None if outcome is None else "scores.match")


def test_of_several_scorers_the_first_that_the_evaluation_declares() -> None:
    both = sample(scores={"a": {"value": "I"}, "b": {"value": "C"}})
    declared = {**EVAL, "scorers": [{"name": "b"}, {"name": "a"}]}
    for evaluation, outcome in ((declared, 1.0), (EVAL, None)):
        (attempt,) = FORMAT.attempts(stored(FORMAT, {"eval": evaluation, "sample": both})).attempts
        assert attempt.outcome == outcome


def test_errors_are_faults_and_limits_are_not() -> None:
    assert attempt_of(error={"message": "docker died"}).fault == "harness_error"
    assert attempt_of(error={"message": "docker died"}).outcome is None
    assert attempt_of(limit={"type": "message", "limit": 10}).fault is None
    assert attempt_of(limit={"type": "operator", "limit": 1}).fault == "aborted"
    unscored = attempt_of(scores=None)
    assert (unscored.fault, unscored.outcome) == (None, None)


def test_both_containers_hold_the_same_records(tmp_path: Path) -> None:
    samples = [sample(1, 1), sample(1, 2, scores={"match": {"value": "I"}}), sample(2, 1), sample(2, 2)]
    (tmp_path / "log.json").write_text(json.dumps(log(*samples), indent=2), encoding="utf-8")
    (tmp_path / "log.eval").write_bytes(archive(*samples))
    loose, packed = split(FORMAT, tmp_path / "log.json"), split(FORMAT, tmp_path / "log.eval")
    assert [record.content for record in loose] == [record.content for record in packed]
    assert [record.bundle_ref for record in packed] == ["uuid-1-1", "uuid-1-2", "uuid-2-1", "uuid-2-2"]
    assert all(one.byte_end <= two.byte_start for one, two in itertools.pairwise(packed))
    assert list(FORMAT.split(tmp_path / "log.eval", packed[1].byte_end)) == packed[2:]
    attempts, _ = read(FORMAT, tmp_path / "log.eval")
    assert [(attempt.task_id, attempt.attempt, attempt.outcome) for attempt in attempts] == [
        ("sums/1", 1, 1.0),
        ("sums/1", 2, 0.0),
        ("sums/2", 1, 1.0),
        ("sums/2", 2, 1.0),
    ]


def test_numbers_that_are_none_cost_no_record(tmp_path: Path) -> None:
    unscored = sample(scores={"match": {"value": float("nan")}})
    (tmp_path / "log.json").write_text(json.dumps(log(unscored, sample(2))), encoding="utf-8")
    (tmp_path / "log.eval").write_bytes(archive(unscored, sample(2)))
    for name in ("log.json", "log.eval"):
        attempts, _ = read(FORMAT, tmp_path / name)
        assert [attempt.outcome for attempt in attempts] == [None, 1.0]


def test_a_member_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(archive(sample(), last=b'{"id": 3, "messages": '))
    good, bad = FORMAT.split(tmp_path / "log.eval")
    assert isinstance(good, SourceRecord)
    assert isinstance(bad, BadRecord) and (bad.reason, bad.line) == ("bad_json", 2)


def test_an_archive_that_is_still_being_written_waits(tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(archive(sample())[:-30])
    assert list(FORMAT.split(tmp_path / "log.eval")) == [Unfinished(line=1, byte_start=0)]


def test_members_packed_with_zstd(tmp_path: Path) -> None:
    """Written by hand: Python's zipfile does not know the compression of newer logs."""
    plain = json.dumps(sample()).encode()
    packed = pa.compress(plain, codec="zstd", asbytes=True)
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as found:
        found.writestr("_journal/start.json", json.dumps({"eval": EVAL}))
        found.writestr("samples/1_epoch_1.json", packed)
    content = bytearray(raw.getvalue())
    local, central = content.rindex(b"PK\x03\x04"), content.rindex(b"PK\x01\x02")
    content[local + 8 : local + 10] = content[central + 10 : central + 12] = (93).to_bytes(2, "little")
    content[central + 24 : central + 28] = len(plain).to_bytes(4, "little")
    (tmp_path / "log.eval").write_bytes(bytes(content))
    (attempt,), _ = read(FORMAT, tmp_path / "log.eval")
    assert attempt.outcome == 1.0


def test_a_log_without_samples_has_no_records(tmp_path: Path) -> None:
    for samples in ([], None):
        (tmp_path / "log.json").write_text(json.dumps(log(samples=samples)), encoding="utf-8")
        assert list(FORMAT.split(tmp_path / "log.json")) == []


def test_a_sample_that_was_scored_again_counts_once() -> None:
    before, after = sample(scores=None), sample()
    bundle = FORMAT.attempts(stored(FORMAT, {"eval": EVAL, "sample": before}, {"eval": EVAL, "sample": after}))
    assert [attempt.outcome for attempt in bundle.attempts] == [1.0]
    assert bundle.left == {"rec-0": ("", "superseded")}


@pytest.mark.parametrize("changes", [{"id": None}, {"messages": None}, {"messages": ["x"]}, {"messages": [{"role": 5}]}])
def test_a_sample_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    broken = {**sample(), **changes}
    assert refused(FORMAT, tmp_path / "log.json", log(broken)).reason == "wrong_shape"
    assert refused(FORMAT, tmp_path / "log.eval", archive(broken)).reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "inspect_ai")
    counts = {name: len(attempts) for name, attempts in found.items()}
    assert counts["docent_log.eval"] == 15
    assert sum(len(attempts) for name, attempts in found.items() if "popularity" in name) == 10
    assert sum(counts[name] for name in counts if "no-samples" in name) == 0
    outcomes = Counter(attempt.outcome for attempts in found.values() for attempt in attempts)
    assert set(outcomes) == {0.0, 1.0, None} and outcomes[None] == 1  # one log has no scores
    assert "attachment://" not in json.dumps([attempt.turns for attempts in found.values() for attempt in attempts])
