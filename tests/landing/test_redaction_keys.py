"""What stands under a telling key is replaced as a whole; JSON inside strings stays JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.landing.redaction import Redactor
from pipelines.landing.redaction_checks import iban, luhn, phone
from tests.landing.test_redaction import KEY, SECRETS

PLAIN = "plain-ran" + "dom-string"
COOKIE = "sid=" + "a1b2c3d4e5"
TOKEN = "a1b2c3d4" + "e5f6g7h8i9j0"


def redacted(value: Any) -> tuple[Any, dict[str, int]]:
    redactor = Redactor(KEY)
    return redactor.value(value), dict(redactor.counts)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"api_key": PLAIN}, "key"),
        ({"llm_config": {"apiKey": PLAIN}}, "key"),
        ({"headers": {"X-Api-Key": PLAIN}}, "key"),
        ({"headers": {"x-api-key": [PLAIN]}}, "key"),
        ({"headers": [["x-api-key", PLAIN]]}, "key"),
        ({"headers": [["authorization", f"Custom {PLAIN}"]]}, "authorization"),
        ({"Authorization": PLAIN}, "authorization"),
        ({"set-cookie": COOKIE}, "cookie"),
        ({"env": {"OPENAI_API_KEY": PLAIN}}, "key"),
        ({"env": [{"name": "OPENAI_API_KEY", "value": PLAIN}]}, "key"),
        ({"attributes": [{"key": "http.request.header.authorization", "value": {"stringValue": PLAIN}}]}, "authorization"),
        ({"password": "hun" + "ter"}, "password"),
        ({"db_password": 48213377}, "password"),
        ({"clientSecret": PLAIN}, "secret"),
        ({"client_secret": PLAIN}, "secret"),
        ({"refresh_token": TOKEN}, "token"),
        ({"token": TOKEN}, "token"),
        ({"arguments": json.dumps({"api_key": PLAIN})}, "key"),
        ({"arguments": json.dumps({"body": json.dumps({"password": "hun" + "ter"})})}, "password"),
        ({"input": json.dumps([{"content": f"my key: {SECRETS['openai_key']}"}])}, "openai_key"),
        ({"content": "{'password': 'hun" + "ter', 'n': 1}"}, "quoted_password"),
        ({"content": '{"api_key": "plain-ran' + 'dom-string", "cut": "'}, "quoted_password"),
        ({"arguments": '{"text": "\\u0073k-proj-' + SECRETS["openai_key"][8:] + '"}'}, "openai_key"),
        ({"content": "cut: \\u0073k-proj-" + SECRETS["openai_key"][8:]}, "openai_key"),
        ({"card": 4111111111111111}, "card_number"),
        ({"phone": 5550123456}, "phone_number"),
        ({"environment": [{"Name": "DB_PASSWORD", "Value": "hun" + "ter"}]}, "password"),
        ({"passwords": ["hun" + "ter"]}, "password"),
        ({"password": {"value": ["hun" + "ter"]}}, "password"),
        ({"properties": {"password": {"type": "string", "default": "hun" + "ter"}}}, "password"),
        ({"properties": {"api_key": {"type": "string", "examples": [PLAIN]}}}, "key"),
        (
            {"attributes": [{"key": "db.password", "value": {"arrayValue": {"values": [{"stringValue": "hun" + "ter"}]}}}]},
            "password",
        ),
    ],
)
def test_a_value_under_a_telling_key_is_replaced(value: Any, rule: str) -> None:
    found, counts = redacted(value)
    assert counts == {rule: 1}
    said = json.dumps(found)
    assert f"[redacted:{rule}:" in said
    for secret in (PLAIN, COOKIE, TOKEN, "hunter", "4111111111111111", "48213377", SECRETS["openai_key"][8:]):
        assert secret not in said
    for name in ("arguments", "input"):
        if name in value:
            json.loads(found[name])
    again, counts = redacted(found)
    assert again == found and not counts


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 4096, "tokens": 12, "token_ids": [1, 2], "num_tokens": "4096"},
        {"api_key": None, "password": None, "token": None, "secret": True, "api_key_env": "NIGHTSHIFT_JUDGE_KEY"},
        {"key": "Enter", "keys": "Control+Shift+P", "token": "mia", "primary_key": "order_id_of_customer"},
        {"logprobs": {"content": [{"token": "Order", "logprob": -0.5, "bytes": [79]}]}},
        {"properties": {"password": {"type": "string", "description": "The user's password"}}, "required": ["password", "user"]},
        {"api_key": "${OPENAI_API_KEY}", "password": "<your password>", "client_secret": "********", "apiKey": ""},
        {"password": "string", "api_key": "EMPTY"},
        {"eos_token": "<|endoftext|>0123456789abcdef", "next_page_token": "abcdefghij0123456789"},
        {"name": "password", "type": "text"},
        {"PWD": "/home/mia/work", "cwd": "/x"},
        {"content": "def login(user, password): return password == settings.PASSWORD"},
        {"arguments": '{"password": {"type": "string"},  "spaces": "stay"}'},
        {"card": 4111111111111112, "id": "4f3c2b1a-4111-4111-8111-111111111111", "ns": "1764086400123456789"},
        {"content": "@@ -10,7 +10,9 @@ 2026-11-20T10:00:00+01:00 1.4111111111111111 192.168.100.200"},
    ],
)
def test_what_only_looks_telling_stays(value: Any) -> None:
    found, counts = redacted(value)
    assert not counts
    assert found is value


def test_json_in_a_string_keeps_its_numbers_and_its_width() -> None:
    text = '{"big": 123456789012345678901234567890, "wide": 1.5, "api_key": "' + PLAIN + '", "é": "\\ud83d\\ude00"}'
    found, counts = redacted({"arguments": text})
    assert counts == {"key": 1}
    assert '"big": 123456789012345678901234567890, "wide": 1.5, "api_key": "[redacted:key:' in found["arguments"]
    assert json.loads(found["arguments"])["é"] == "😀"


def test_of_two_equal_keys_in_a_string_none_keeps_its_secret() -> None:
    text = '{"a": "' + SECRETS["github_token"] + '", "a": "x"}'
    found, counts = redacted({"arguments": text})
    assert SECRETS["github_token"] not in json.dumps(found) and counts == {"github_token": 1}


def test_ids_in_json_in_a_string_go_with_the_secret() -> None:
    inner = json.dumps({"token_ids": [1, 2], "logprobs": {"content": [{"token": "mia"}]}, "usage": {"prompt_tokens": 2}})
    found, _ = redacted({"response": inner, "text": SECRETS["email"], "request": {"logprobs": True, "top_logprobs": 2}})
    assert json.loads(found["response"]) == {"token_ids": None, "logprobs": None, "usage": {"prompt_tokens": 2}}
    assert found["request"] == {"logprobs": True, "top_logprobs": 2}


def test_a_record_that_is_nested_deeply_does_no_harm() -> None:
    value: Any = SECRETS["email"]
    for _ in range(120):
        value = [value]
    for depth in (200, 2000):
        found, _ = redacted({"v": value, "arguments": "[" * depth + '"' + SECRETS["email"] + '"' + "]" * depth})
        assert SECRETS["email"] not in json.dumps(found)


def test_checksums_decide() -> None:
    assert [luhn(text) for text in ("4111111111111111", "4111 1111 1111 1111", "378282246310005", "4111111111111112")] == [
        16,
        19,
        15,
        0,
    ]
    assert [
        iban(text) for text in ("GB82WEST12345698765432", "GB82WEST12345698765432 THEN", "GB83WEST12345698765432", "XX82WEST")
    ] == [
        22,
        22,
        0,
        0,
    ]
    assert phone("+1 415 555 0100") and not phone("+1 115 555 0100") and not phone("+2 999 99") and phone("415-555-0100")
