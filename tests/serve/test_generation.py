from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from trainer.serve.batching import FREE_PADDING_TOKENS, MAX_ROWS, Waiting, fitting
from trainer.serve.generation import Answer, Sampling, draw, generate
from trainer.serve.policy import Adapter, AdapterRefusedError, ServedPolicy

SYSTEM = {"role": "system", "content": "Reply with the number and with nothing else."}


def prompt(policy: ServedPolicy, text: str) -> tuple[int, ...]:
    return tuple(policy.render([SYSTEM, {"role": "user", "content": text}], None))


def answers(policy: ServedPolicy, texts: list[str], each: int = 2, **sampling: Any) -> list[Answer]:
    asked = Sampling(**{"max_tokens": 12, **sampling})
    return [Answer(prompt(policy, text), asked, random.Random(f"{text}/{index}")) for text in texts for index in range(each)]


def sampled(policy: ServedPolicy, batch: list[Answer], adapter: Adapter | None = None) -> list[Answer]:
    finished: list[Answer] = []
    generate(policy, policy.use(adapter), batch, finished.append)
    assert sorted(map(id, finished)) == sorted(map(id, batch))
    return batch


def plain_logprobs(model: Any, answer: Answer) -> list[float]:
    with torch.inference_mode():
        logits = model(torch.tensor([[*answer.prompt, *answer.token_ids]])).logits[0]
    logprobs = logits.log_softmax(-1)[len(answer.prompt) - 1 :]
    return [float(logprobs[place, token]) for place, token in enumerate(answer.token_ids)]


def assert_exact(model: Any, batch: list[Answer]) -> None:
    for answer in batch:
        assert answer.token_ids
        assert answer.logprobs == pytest.approx(plain_logprobs(model, answer), abs=1e-4)


@pytest.fixture
def policy(sharp_model: Path) -> ServedPolicy:
    return ServedPolicy(str(sharp_model))


@pytest.fixture(scope="module")
def plain(sharp_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(sharp_model).eval()


TEXTS = ["a", "Order 12345 is late.", "Order 12346 is late.", "word " * 30, "Order 12345"]


def test_logprobs_are_those_of_a_plain_forward_over_mixed_lengths(policy: ServedPolicy, plain: Any) -> None:
    assert_exact(plain, sampled(policy, answers(policy, TEXTS)))
    # now the shared beginning is kept, and one more prompt extends it
    assert policy.prefixes[None].kept
    assert_exact(plain, sampled(policy, answers(policy, ["Order 12345 is late, is it not?"])))
    assert_exact(plain, sampled(policy, answers(policy, TEXTS, each=1)))


def test_rows_that_end_early_make_room_without_disturbing_the_others(policy: ServedPolicy, plain: Any) -> None:
    batch = answers(policy, TEXTS, each=3)
    for index, answer in enumerate(batch):
        answer.sampling = Sampling(max_tokens=1 + index % 7)
    sampled(policy, batch)
    assert [len(answer.token_ids) for answer in batch] == [1 + index % 7 for index in range(len(batch))]
    assert_exact(plain, batch)


def test_the_buffer_grows_for_answers_longer_than_it_starts_with(
    policy: ServedPolicy, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.serve.generation.FIRST_COLUMNS", 2)
    assert_exact(plain, sampled(policy, answers(policy, TEXTS[:2], max_tokens=40)))


def test_adapters_switch_back_and_forth_without_leaving_anything_behind(
    policy: ServedPolicy, plain: Any, sharp_model: Path, adapter: Path, other_adapter: Path
) -> None:
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    for name, folder in (("one", adapter), ("two", other_adapter)):
        policy.load(name, folder)
    for name, folder in (("one", adapter), ("two", other_adapter), ("one", adapter)):
        tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sharp_model), str(folder)).eval()
        batch = sampled(policy, answers(policy, TEXTS), policy.adapters[name])
        assert_exact(tuned, batch)
        assert max(abs(a - b) for a, b in zip(batch[0].logprobs, plain_logprobs(plain, batch[0]), strict=True)) > 0.01
    assert_exact(plain, sampled(policy, answers(policy, TEXTS)))
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.state_dict().items())


def test_an_adapter_loaded_anew_under_a_freed_name_does_not_read_the_old_ones_prefixes(
    policy: ServedPolicy, sharp_model: Path, adapter: Path, other_adapter: Path
) -> None:
    policy.load("mine", adapter)
    sampled(policy, answers(policy, TEXTS), policy.adapters["mine"])
    with pytest.raises(AdapterRefusedError, match="loaded already"):
        policy.load("mine", other_adapter)
    assert policy.unload("mine")
    policy.load("mine", other_adapter)
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sharp_model), str(other_adapter)).eval()
    assert_exact(tuned, sampled(policy, answers(policy, TEXTS), policy.adapters["mine"]))


def test_a_seed_gives_the_same_tokens_whatever_it_is_batched_with(policy: ServedPolicy) -> None:
    together = sampled(policy, answers(policy, TEXTS))
    for index, text in enumerate(TEXTS):
        alone = sampled(policy, answers(policy, [text]))
        assert [answer.token_ids for answer in alone] == [answer.token_ids for answer in together[2 * index : 2 * index + 2]]
    assert len({tuple(answer.token_ids) for answer in together}) > len(TEXTS)


def test_temperature_zero_takes_the_most_probable_token(policy: ServedPolicy, plain: Any) -> None:
    first, second = sampled(policy, answers(policy, ["greedy"], temperature=0))
    assert first.token_ids == second.token_ids
    with torch.inference_mode():
        logits = plain(torch.tensor([[*first.prompt, *first.token_ids]])).logits[0, len(first.prompt) - 1 : -1]
    assert logits.argmax(-1).tolist() == first.token_ids


def test_top_p_and_temperature_leave_the_logprobs_those_of_the_model(policy: ServedPolicy, plain: Any) -> None:
    batch = sampled(policy, answers(policy, ["nucleus"], each=8, top_p=1e-6, temperature=2.0))
    assert len({tuple(answer.token_ids) for answer in batch}) == 1  # a nucleus of one token
    assert_exact(plain, batch)


def test_draws_follow_the_distribution_and_never_take_what_has_no_probability() -> None:
    probabilities = torch.zeros(4000, 600)
    probabilities[:, [3, 299, 300, 599]] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    uniforms = torch.arange(4000, dtype=torch.float64) / 4000
    counts = torch.bincount(draw(probabilities, uniforms), minlength=600)
    assert counts.sum() == counts[[3, 299, 300, 599]].sum()
    assert counts[[3, 299, 300, 599]].tolist() == pytest.approx([400, 800, 1200, 1600], abs=1)
    edge = torch.tensor([0.0, 1.0 - 1e-16], dtype=torch.float64)
    assert draw(probabilities[:2], edge).tolist() == [3, 599]


def test_the_end_token_ends_an_answer_and_is_part_of_it(policy: ServedPolicy, plain: Any) -> None:
    batch = sampled(policy, answers(policy, ["end"], each=64, max_tokens=30, temperature=3.0))
    ended = [answer for answer in batch if answer.finish_reason == "stop"]
    assert ended and all(answer.token_ids[-1] in policy.end_tokens for answer in ended)
    assert all(len(answer.token_ids) == 30 for answer in batch if answer.finish_reason == "length")
    assert_exact(plain, ended)


def test_stop_texts_end_an_answer(policy: ServedPolicy) -> None:
    whole = policy.text_of(sampled(policy, answers(policy, ["stop"], each=1, max_tokens=20))[0].token_ids)
    stop = next(character for character in whole if character.isascii())
    (cut,) = sampled(policy, answers(policy, ["stop"], each=1, max_tokens=20, stop=(stop,)))
    assert cut.finish_reason == "stop" and cut.stop_text == stop
    assert policy.text_of(cut.token_ids).endswith(stop)


def test_cancelled_rows_are_given_up(policy: ServedPolicy) -> None:
    batch = answers(policy, ["gone", "stays"], each=1)
    batch[0].cancelled = True
    sampled(policy, batch)
    assert len(batch[0].token_ids) == 1 and len(batch[1].token_ids) == 12


def waiting(length: int, adapter: Adapter | None = None, rows: int = 1, first: int = 0) -> Waiting:
    made = [Answer((first, *range(1, length)), Sampling(), random.Random(0)) for _ in range(rows)]
    return Waiting(adapter, made)


def test_a_batch_holds_one_adapter_and_prompts_of_similar_length(sharp_model: Path) -> None:
    one = Adapter("one", sharp_model, 1.0, {})
    queue = [waiting(50), waiting(50, one), waiting(50), waiting(FREE_PADDING_TOKENS * 3), waiting(60)]
    assert fitting(queue) == [queue[0], queue[2], queue[4]]
    assert fitting(queue[1:2]) == [queue[1]]
    many = [waiting(50, rows=MAX_ROWS - 1), waiting(50, rows=2), waiting(50)]
    assert fitting(many) == [many[0], many[2]]
