"""Secrets go before anything is stored; ids and what is no secret stay."""

from __future__ import annotations

import json

import pytest

from pipelines.landing.redaction import Redactor, token
from pipelines.landing.redaction_rules import stock

# put together here, so that no scanner takes the file itself for a leak
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SECRETS = {
    "private_key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE" + LETTERS + "\n-----END RSA " + "PRIVATE KEY-----",
    "connection_string": "hunter" + "2pass",
    "account_key": LETTERS[:40] + "==",
    "jwt": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:20] + "." + LETTERS[:20],
    "bearer": "Zq" + LETTERS[:30],
    "basic": "dXNlcjpw" + "YXNzd29yZA==",
    "anthropic_key": "sk-" + "ant-api03-" + LETTERS[:30],
    "openai_key": "sk-" + "proj-" + LETTERS[:30],
    "aws_key": "AKIA" + "ABCDEFGHIJ234567",
    "aws_secret": LETTERS[:38] + "/+",
    "google_key": "AIza" + LETTERS[:35],
    "github_token": "ghp" + "_" + LETTERS[:36],
    "gitlab_token": "glpat" + "-" + LETTERS[:20],
    "slack_token": "xoxb" + "-1234567890-" + LETTERS[:12],
    "hugging_face_token": "hf" + "_" + LETTERS[:34],
    "model_vendor_key": "gsk" + "_" + LETTERS[:52],
    "stripe_key": "sk" + "_live_" + LETTERS[:24],
    "package_token": "npm" + "_" + LETTERS[:36],
    "service_token": "dapi" + "0123456789abcdef" * 2,
    "named_key": "Qm4tR8vLp2Xs9KdW1bNz7HyC",
    "email": "mia.li@" + "example.com",
}
AROUND = {
    "connection_string": "postgresql://app:{}@db.internal:5432/orders",
    "account_key": "DefaultEndpointsProtocol=https;AccountKey={};EndpointSuffix=core",
    "bearer": "curl -H 'Authorization: Bearer {}'",
    "basic": "Authorization: Basic {}",
    "named_key": "my API key: {}",
    "aws_secret": "AWS_SECRET_ACCESS_KEY={}",
}
KEY = b"k" * 16


RULES = {rule.name: rule for rule in stock().rules}


def test_the_secrets_here_are_of_stock_rules() -> None:
    assert set(SECRETS) <= set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_matches_its_example_and_spares_the_other(name: str) -> None:
    rule, matched, spared = RULES[name], "".join(RULES[name].match), "".join(RULES[name].spare)
    assert matched and spared and rule.what
    for text in (matched, json.dumps({"arguments": matched}), json.dumps([json.dumps({"arguments": matched})])):
        redactor = Redactor(KEY)
        redacted = redactor.text(text)
        assert redactor.counts == {name: 1}
        assert f"[redacted:{name}:" in redacted
        if text is not matched:
            json.loads(redacted)
    redactor = Redactor(KEY)
    assert redactor.text(spared) == spared and not redactor.counts


@pytest.mark.parametrize("rule", SECRETS)
@pytest.mark.parametrize("around", ["{}", "text before {} and after", '{{"k": "{}"}}', "\\n{}\\n", "é{} ü", "\x1b[32m{}\x1b[0m"])
def test_a_secret_is_replaced_by_its_token_wherever_it_stands(rule: str, around: str) -> None:
    redactor = Redactor(KEY)
    text = around.format(AROUND.get(rule, "{}").format(SECRETS[rule]))
    redacted = redactor.text(text)
    assert SECRETS[rule] not in redacted
    assert redactor.counts == {rule: 1}
    assert f"[redacted:{rule}:" in redacted
    if rule in AROUND:  # what stands around it stays readable
        assert redacted == around.format(AROUND[rule].format(token(KEY, rule, SECRETS[rule])))


def test_equal_secrets_get_equal_tokens_under_one_key_and_others_under_another() -> None:
    text = f"{SECRETS['email']} {SECRETS['email']} x{SECRETS['email']}"
    one, again, other = Redactor(KEY).text(text), Redactor(KEY).text(text), Redactor(b"another key 16 b").text(text)
    assert one == again != other
    first, second, third = one.split(" ")
    assert first == second != third


@pytest.mark.parametrize(
    "text",
    [
        "task-management and risk-assessment, sk-learn",
        "see https://host:8080/path and user@localhost",
        "git@v1, policy@3, nightshift-order-desk@12",
        "call_oIHazX6yQrB8hUwl4cRilFKj",
        "the bearer of this letter",
        "eyJhbGciOi",
        "0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor(KEY)
    assert redactor.text(text) == text
    assert not redactor.counts


@pytest.mark.parametrize(
    "text",
    [
        "git clone git@github.com:order/desk.git",
        '<img src="apple-touch-icon@2.png"> icon@3x.webp',
        "systemctl status user@1000.service",
        "tar xf lodash@4.17.21.tgz",
        r'{"code": "import pytest\n@pytest.fixture\n\t@app.route(1)", ',
        "scores = q@k.transpose(-2, -1)",
        "PWD=/testbed1/src\nOLDPWD=/home/Order1/Desk2\npwd: ~/order2",
        "password=/run/secrets/db1",
        "Authorization: Bearer YOUR_API_KEY_GOES_HERE",
    ],
)
def test_code_paths_and_names_of_files_are_nobodys(text: str) -> None:
    redactor = Redactor(KEY)
    assert redactor.text(text) == text
    assert not redactor.counts


def test_an_escape_before_an_address_is_no_part_of_it() -> None:
    text = r'{"text": "ask\nmia.li@example' + r'.com\nnow", '
    redacted = Redactor(KEY).text(text)
    assert "mia" not in redacted
    assert r"ask\n[redacted:email:" in redacted


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("postgresql://app:p@ss{}@db.internal:5432/orders", "connection_string"),
        ("export SLACK_TOKEN={}Kd19Qx", "environment"),
        ("AWS_SESSION_TOKEN='{}Kd19Qx//+=='", "environment"),
        ("MYSQL_PASS={}Kd19Qx", "environment"),
        ("curl -u app:{} https://db.internal", "option"),
        ("curl -s --user 'app:{}' https://db.internal", "option"),
        ("mysql --password {} -h db", "option"),
        ("tool --api-key={}Kd19Qx", "option"),
        ("sshpass -p {} ssh db", "option"),
        ("machine db.internal login app password {}", "option"),
        ("Authorization: Token {}Kd19QxVb72", "bearer"),
        ("> Cookie: session={}Kd19Qx; theme=dark", "cookie_header"),
        ("<password>{}</password>", "tagged"),
        ("AWS Secret Access Key [None]: {}abcdefghijklmnopqrstuvwxyzABCD", "aws_secret"),
    ],
)
def test_secrets_in_commands_and_settings(text: str, rule: str) -> None:
    secret = "Hun" + "ter2x9y"
    redactor = Redactor(KEY)
    redacted = redactor.text(text.format(secret))
    assert redactor.counts == {rule: 1}
    assert secret not in redacted
    assert f"[redacted:{rule}:" in redacted


def test_an_unended_private_key_goes_to_the_end() -> None:
    text = "before " + SECRETS["private_key"].split("-----END")[0]
    assert Redactor(KEY).text(text).startswith("before [redacted:private_key:")
    assert LETTERS not in Redactor(KEY).text(text)


def test_values_are_walked_and_untouched_ones_returned_as_they_are() -> None:
    clean = {"a": [1, 2.5, None, True, "text"], "token_ids": [1, 2], "logprobs": [-0.5]}
    assert Redactor(KEY).value(clean) is clean
    secret = SECRETS["openai_key"]
    redactor = Redactor(KEY)
    redacted = redactor.value({"mixed": [1, secret], secret: {"deep": [[secret]]}, "number": 12345678901234567890})
    assert secret not in json.dumps(redacted)
    assert redacted["number"] == 12345678901234567890
    assert redactor.counts == {"openai_key": 3}


def test_ids_and_logprobs_spell_the_secret_too_and_go_with_it() -> None:
    value = {
        "prompt_token_ids": [1],
        "token_ids": [2],
        "logprobs": {"content": [{"token": "mia"}]},
        "response": {"choices": [{"token_ids": [3], "logprobs": [-1.0]}], "usage": {"completion_tokens": 4}},
        "text": SECRETS["email"],
    }
    redacted = Redactor(KEY).value(value)
    assert redacted["prompt_token_ids"] is redacted["token_ids"] is redacted["logprobs"] is None
    assert redacted["response"] == {"choices": [{"token_ids": None, "logprobs": None}], "usage": {"completion_tokens": 4}}


def test_a_name_may_be_an_address_but_no_credential() -> None:
    redactor = Redactor(KEY)
    value = {"harness": SECRETS["email"], "call_id": SECRETS["github_token"], "task_id": SECRETS["email"]}
    redacted = redactor.value(value)
    assert redacted["harness"] == SECRETS["email"]
    assert redacted["call_id"].startswith("[redacted:github_token:")
    assert redacted["task_id"].startswith("[redacted:email:")
    assert redactor.counts == {"github_token": 1, "email": 1}
    only_names = {"policy_version": SECRETS["email"], "token_ids": [1]}
    assert Redactor(KEY).value(only_names) == only_names


def test_redacting_what_was_redacted_changes_nothing() -> None:
    text = " ".join(AROUND.get(rule, "{}").format(secret) for rule, secret in SECRETS.items())
    once = Redactor(KEY).text(text)
    again = Redactor(KEY)
    assert again.text(once) == once
    assert not again.counts


def test_escapes_hide_nothing_in_text_that_could_not_be_decoded() -> None:
    hidden = SECRETS["github_token"].replace("g", "\\u0067", 1)
    slashes = AROUND["connection_string"].format(SECRETS["connection_string"]).replace("/", "\\/")
    for text in (hidden, slashes, "\\n" + SECRETS["email"]):
        redactor = Redactor(KEY)
        kept = redactor.bad_text(f'{{"torn": "{text}'.encode(), 1000)
        assert redactor.counts.total() == 1
        assert "[redacted:" in kept and "hunter" not in kept and "0067hp" not in kept and "ghp" not in kept and "mia" not in kept
    assert len(Redactor(KEY).bad_text(b"x" * 5000, 100)) == 100
