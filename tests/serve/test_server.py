from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainer.embedded import tokenizer_hash

SCORES = {
    "type": "object",
    "properties": {
        "scores": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "prefixItems": [
                {
                    "type": "object",
                    "properties": {
                        "trajectory_id": {"const": name},
                        "explanation": {"type": "string", "maxLength": 10},
                        "score": {"type": "number", "minimum": 0, "maximum": 1},
                    },
                    "required": ["trajectory_id", "explanation", "score"],
                    "additionalProperties": False,
                }
                for name in ("t1", "t2")
            ],
            "items": False,
        }
    },
    "required": ["scores"],
    "additionalProperties": False,
}


def body(model: str, text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 6, **fields}


def ask(url: str, content: dict[str, Any]) -> dict[str, Any]:
    reply = httpx.post(f"{url}/chat/completions", json=content, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def error(reply: httpx.Response, status: int) -> str:
    assert reply.status_code == status, reply.text
    found = reply.json()["error"]
    assert found["code"] == status and found["type"]
    return found["message"]


@pytest.fixture
def url(served: tuple[str, Any]) -> str:
    return served[0]


@pytest.fixture
def base(served: tuple[str, Any]) -> str:
    return served[1].policy.name


def test_a_reply_has_the_fields_that_vllm_gives(url: str, base: str, served: tuple[str, Any]) -> None:
    reply = ask(url, body(base, n=3, seed=7, logprobs=True, return_token_ids=True))
    policy = served[1].policy
    assert reply["object"] == "chat.completion" and reply["model"] == base
    assert reply["prompt_token_ids"] == policy.render([{"role": "user", "content": "hello"}], None)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    for choice in reply["choices"]:
        assert choice["finish_reason"] in ("stop", "length")
        assert choice["message"] == {"role": "assistant", "content": policy.text_of(choice["token_ids"])}
        entries = choice["logprobs"]["content"]
        assert len(entries) == len(choice["token_ids"]) and all(entry["logprob"] < 0 for entry in entries)
    assert reply["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in reply["choices"])
    assert len({tuple(choice["token_ids"]) for choice in reply["choices"]}) == 3
    again = ask(url, body(base, n=3, seed=7, logprobs=True, return_token_ids=True))
    assert [choice["token_ids"] for choice in again["choices"]] == [choice["token_ids"] for choice in reply["choices"]]


def test_token_ids_and_logprobs_come_only_when_asked_for(url: str, base: str) -> None:
    reply = ask(url, body(base))
    assert "prompt_token_ids" not in reply and "token_ids" not in reply["choices"][0]
    assert reply["choices"][0]["logprobs"] is None


def test_concurrent_requests_are_sampled_in_few_batches_and_each_gets_its_own(
    url: str, base: str, served: tuple[str, Any]
) -> None:
    batcher = served[1].batcher
    contents = [body(base, f"ticket {index}", seed=index, return_token_ids=True) for index in range(24)]
    before = batcher.num_batches
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda content: ask(url, content), contents))
    assert batcher.num_batches - before < 24
    for content, reply in zip(contents[::6], together[::6], strict=True):
        alone = ask(url, content)
        assert alone["prompt_token_ids"] == reply["prompt_token_ids"]
        assert alone["choices"][0]["token_ids"] == reply["choices"][0]["token_ids"]


def test_adapters_are_loaded_named_listed_and_unloaded(url: str, base: str, served: tuple[str, Any], adapter: Path) -> None:
    load = {"lora_name": "night-1", "lora_path": str(adapter)}
    assert error(httpx.post(f"{url}/chat/completions", json=body("night-1")), 404) == "The model `night-1` does not exist."
    assert httpx.post(f"{url}/load_lora_adapter", json=load).status_code == 200
    assert "loaded already" in error(httpx.post(f"{url}/load_lora_adapter", json=load), 400)
    listed = {row["id"]: row for row in httpx.get(f"{url}/models").json()["data"]}
    assert listed["night-1"]["parent"] == base and listed[base]["parent"] is None
    folder = served[1].policy.folder
    assert {(row["base_model"], row["tokenizer_hash"]) for row in listed.values()} == {(base, tokenizer_hash(folder))}
    asked = {"seed": 3, "max_tokens": 20, "return_token_ids": True}
    tuned, plain = ask(url, body("night-1", **asked)), ask(url, body(base, **asked))
    assert tuned["choices"][0]["token_ids"] != plain["choices"][0]["token_ids"]
    assert httpx.post(f"{url}/unload_lora_adapter", json={"lora_name": "night-1"}).status_code == 200
    error(httpx.post(f"{url}/chat/completions", json=body("night-1")), 404)
    error(httpx.post(f"{url}/unload_lora_adapter", json={"lora_name": "night-1"}), 404)


def test_adapters_that_are_none_are_refused(url: str, base: str, tmp_path: Path, adapter: Path) -> None:
    def refusal(folder: Path) -> str:
        return error(httpx.post(f"{url}/load_lora_adapter", json={"lora_name": "x", "lora_path": str(folder)}), 400)

    assert "name a checkpoint folder" in refusal(tmp_path / "absent")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_bytes((adapter / name).read_bytes())
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**settings, "use_dora": True}))
    assert "only plain LoRA" in refusal(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    assert "cannot be read" in refusal(tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    assert "safetensors" in refusal(tmp_path)
    form = httpx.post(f"{url}/load_lora_adapter", content='{"lora_name":"x"}', headers={"content-type": "text/plain"})
    assert "application/json" in error(form, 415)


def test_a_schema_forces_well_formed_replies(url: str, base: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "scores", "schema": SCORES}}
    asked = body(base, "Score them.", max_tokens=400, response_format=wanted, n=4, logprobs=True, return_token_ids=True, seed=1)
    for choice in ask(url, asked)["choices"]:
        assert choice["finish_reason"] == "stop"
        reply = json.loads(choice["message"]["content"])
        assert [row["trajectory_id"] for row in reply["scores"]] == ["t1", "t2"]
        assert all(0 <= row["score"] <= 1 and len(row["explanation"]) <= 10 for row in reply["scores"])
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])


def test_forced_tokens_have_the_models_own_logprobs(url: str, base: str, served: tuple[str, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    wanted = {"type": "json_schema", "json_schema": {"schema": SCORES}}
    asked = body(base, "Score.", max_tokens=300, response_format=wanted, n=3, logprobs=True, return_token_ids=True, seed=2)
    reply = ask(url, asked)
    model = AutoModelForCausalLM.from_pretrained(served[1].policy.folder).eval()
    start = len(reply["prompt_token_ids"])
    for choice in reply["choices"]:
        token_ids = torch.tensor([reply["prompt_token_ids"] + choice["token_ids"]])
        with torch.inference_mode():
            logprobs = model(token_ids).logits[0].log_softmax(-1)
        expected = [float(logprobs[start - 1 + place, token]) for place, token in enumerate(choice["token_ids"])]
        assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == pytest.approx(expected, abs=1e-4)


def test_a_stream_says_the_same_as_the_whole_reply(url: str, base: str) -> None:
    asked = body(base, seed=5, n=2, max_tokens=12, logprobs=True, return_token_ids=True)
    whole = ask(url, asked)
    with httpx.stream("POST", f"{url}/chat/completions", json={**asked, "stream": True}, timeout=60) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert events[-1]["usage"] == whole["usage"]
    for index, choice in enumerate(whole["choices"]):
        mine = [part for event in events[1:-1] for part in event["choices"] if part["index"] == index]
        assert len(mine) > 2
        assert "".join(part["delta"]["content"] for part in mine) == choice["message"]["content"]
        assert [token for part in mine for token in part["token_ids"]] == choice["token_ids"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n: "),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5000}, "maximum context length"),
        ({"top_k": 5}, "top_k is not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ({"response_format": {"type": "json_schema"}}, "json_schema.schema is missing"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "odd"}}}}, "response_format"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(url: str, base: str, fields: dict[str, Any], message: str) -> None:
    assert message in error(httpx.post(f"{url}/chat/completions", json=body(base, **fields)), 400)


def test_no_json_and_no_route_are_openai_shaped_errors(url: str) -> None:
    assert "no JSON" in error(httpx.post(f"{url}/chat/completions", content=b"{"), 400)
    assert "is not served here" in error(httpx.get(f"{url}/embeddings"), 404)
    assert httpx.get(url.removesuffix("/v1") + "/health").json() == {"status": "ok"}


def test_a_broken_batch_answers_500_and_the_server_goes_on(
    url: str, base: str, served: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(served[1].policy, "forward", lambda *_: 1 / 0)
        error(httpx.post(f"{url}/chat/completions", json=body(base)), 500)
    assert ask(url, body(base))["choices"]
