"""Ids of a secret become ids of its token where that is exact; those positions have no logprob and are never sampled (I7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines import trajectories
from pipelines.batch_rows import RowRefusedError, sequences_of
from pipelines.doors.tokenizer import Spelling, spelling_of
from pipelines.landing.land import land
from pipelines.landing.redacted_tokens import with_token_ids
from pipelines.landing.redaction import Redactor
from pipelines.schemas import RECORDS, TRAJECTORIES
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines
from tests.landing.test_redaction import KEY, SECRETS

EMAIL = SECRETS["email"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer whose merges straddle words, spaces and addresses."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["user\nask mia.li@example.com: é or mia.li@example.com. Thanks!"] * 50, trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    made = tmp_path_factory.mktemp("base")
    tokenizer.save(str(made / "tokenizer.json"))
    return made


@pytest.fixture(scope="module")
def spelling(folder: Path) -> Spelling:
    found = spelling_of(folder / "tokenizer.json")
    assert found is not None
    return found


def logged(spelling: Spelling, asked: str, answer: str, **changes: Any) -> dict[str, Any]:
    ids = spelling.ids(f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n")
    sampled = spelling.ids(f"{answer}<|im_end|>")
    return call(
        1,
        request={"messages": [{"role": "user", "content": asked}], "tools": None},
        response={"message": {"role": "assistant", "content": answer, "tool_calls": None}, "finish_reason": "stop"},
        prompt_token_ids=ids,
        token_ids=sampled,
        logprobs=[-0.001 * (place + 1) for place in range(len(sampled))],
        **changes,
    )


def redacted(spelling: Spelling | None, value: dict[str, Any]) -> dict[str, Any]:
    redactor = Redactor(KEY)
    return with_token_ids(value, redactor.value(value), redactor, lambda: spelling)


def said(spelling: Spelling, ids: list[int]) -> str:
    pieces = spelling.pieces(ids)
    assert pieces is not None
    return b"".join(pieces).decode()


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(st.sampled_from([EMAIL, SECRETS["github_token"], "ask ", " é or ", ": ", "!", "😀"]), min_size=1, max_size=5),
    answer=st.lists(st.sampled_from([EMAIL, " ", "Thanks!", " or mia", "é", "\n", ", "]), min_size=1, max_size=6),
)
def test_ids_spell_the_redacted_text_and_the_others_keep_their_logprobs(
    spelling: Spelling, asked: list[str], answer: list[str]
) -> None:
    value = logged(spelling, "".join(asked), "".join(answer))
    found = redacted(spelling, value)
    text = found["response"]["message"]["content"]
    if found["token_ids"] is None:  # two secrets without anything between them cannot be told apart
        return
    assert said(spelling, found["token_ids"]) == text + "<|im_end|>"
    prompt = found["request"]["messages"][0]["content"]
    assert said(spelling, found["prompt_token_ids"]) == f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    spans = found.get("redacted_spans", [])
    inside = {place for start, end in spans for place in range(start, end)}
    assert {place for place, logprob in enumerate(found["logprobs"]) if logprob is None} == inside
    before = dict(zip(value["logprobs"], value["token_ids"], strict=True))
    kept = [(place, logprob) for place, logprob in enumerate(found["logprobs"]) if logprob is not None]
    assert all(before[logprob] == found["token_ids"][place] for place, logprob in kept)
    assert len(spans) > 0 or EMAIL not in answer


def test_a_secret_alone_is_exact(spelling: Spelling) -> None:
    found = redacted(spelling, logged(spelling, f"ask {EMAIL}: é", f"Thanks! {EMAIL}"))
    assert EMAIL not in said(spelling, found["token_ids"]) + said(spelling, found["prompt_token_ids"])
    assert len(found["redacted_spans"]) == 1


@pytest.mark.parametrize(
    "case", ["other ids", "other model", "tool arguments", "no tokenizer", "elsewhere", "prompt not literal"]
)
def test_what_is_not_exact_stays_null(spelling: Spelling, case: str) -> None:
    value = logged(spelling, f"ask {EMAIL}", "Thanks!")
    match case:
        case "other ids":
            value["prompt_token_ids"].reverse()
        case "other model":
            value["token_ids"][0] = 40_000
        case "tool arguments":
            function = {"name": "f", "arguments": json.dumps({"to": EMAIL})}
            value["response"]["message"]["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
        case "elsewhere":
            value["task_id"] = EMAIL
        case "prompt not literal":
            value["request"]["messages"][0]["content"] = f"ask  {EMAIL}"
    found = redacted(None if case == "no tokenizer" else spelling, value)
    assert found["prompt_token_ids"] is found["token_ids"] is found["logprobs"] is None


@pytest.mark.parametrize(
    ("asked", "answer"), [("ask", f"Thanks! {EMAIL}, Thanks!"), (f"ask {EMAIL}: é", "Thanks!"), ("ask", "Thanks!")]
)
def test_logprobs_of_another_text_are_not_handed_on(
    folder: Path, spelling: Spelling, tmp_path: Path, asked: str, answer: str
) -> None:
    """The tokens after a secret were sampled after the secret: held against its token, a ratio of theirs means nothing."""
    workspace = make_workspace(tmp_path / "w", f'[policy]\nname = "nightshift-order-desk"\nbase_model = "{folder}"\n')
    value = logged(spelling, asked, answer)
    landed = land(workspace, [write_lines(tmp_path / "log.jsonl", [value])])
    trajectories.build(workspace, days=landed.days)
    raw = json.loads(workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw")[0].as_py())
    (row,) = workspace.lake.read(TRAJECTORIES.name, columns=["calls", "num_sampled_tokens", "exact_tokens"]).to_pylist()
    secret = EMAIL in asked + answer
    assert row["exact_tokens"] == (not secret) and row["num_sampled_tokens"] > 0
    (entry,) = json.loads(row["calls"])
    assert entry["token_ids"] == raw["token_ids"] and (entry["logprobs"] is None) == secret
    if secret:
        with pytest.raises(RowRefusedError, match="call 0"):
            sequences_of(row["calls"], row["num_sampled_tokens"])


def test_a_redacted_span_is_never_marked_as_sampled(spelling: Spelling) -> None:
    found = redacted(spelling, logged(spelling, f"ask {EMAIL}: é", f"Thanks! {EMAIL}, Thanks!"))
    ((start, end),) = found["redacted_spans"]
    again = Redactor(KEY).value({**found, "note": EMAIL})  # one that changes once more
    assert again["token_ids"] is again["redacted_spans"] is None
    entry = {name: found[name] for name in ("prompt_token_ids", "token_ids", "redacted_spans")}
    entry["logprobs"] = [-1.0] * len(entry["token_ids"])  # as a lane that recomputes them would have them
    total = len(entry["token_ids"])
    marks = sequences_of(json.dumps([entry]), total - (end - start)).sampled[0]
    assert np.flatnonzero(~marks).tolist() == list(range(start, end))
    for spans in ([[0, total]], [[-1, 2]], [[2, 2]], [3], [[0, 10_000]]):
        with pytest.raises(RowRefusedError, match="call 0"):
            sequences_of(json.dumps([{**entry, "redacted_spans": spans}]), total - (end - start))


def test_a_log_cannot_say_itself_what_was_redacted(workspace: Any, tmp_path: Path) -> None:
    landed = land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1, redacted_spans=[[0, 1]])])])
    assert (landed.records, landed.quarantined) == (0, 1)
