"""Rules of a workspace: its own, switched off, allowed; their hash; and that they move no id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import trajectories
from pipelines.errors import ConfigError
from pipelines.landing.land import land
from pipelines.landing.redacting_again import redacted_again
from pipelines.landing.redaction import Redactor, fingerprint
from pipelines.landing.redaction_rules import rules_of, stock
from pipelines.schemas import RECORDS, TRAJECTORIES
from pipelines.workspace import KEYS, Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines
from tests.landing.test_redaction import AROUND, KEY, SECRETS

OWN = """
[[rule]]
name = "ticket"
what = "Numbers of our ticket system"
pattern = '(TICKET-[0-9]{6})'
personal = true

[[rule]]
name = "patient"
key = "patient(?:_name)?"
"""


def with_rules(folder: Path, section: str, own: str | None = None) -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    if own is not None:
        (folder / "redaction.toml").write_text(own, encoding="utf-8")
    return make_workspace(folder, section and f"[redaction]\n{section}\n")


def test_rules_are_added_and_switched_off_and_texts_are_allowed(tmp_path: Path) -> None:
    section = 'off = ["phone"]\nallow = ["desk@example.com", "/.*@example[.]org/"]\nrules = "redaction.toml"'
    rules = rules_of(with_rules(tmp_path / "w", section, OWN))
    said = "TICKET-123456 +44 20 7946 0958 desk@example.com mia@example.org mia@example.com"
    redactor = Redactor(KEY, rules)
    found = redactor.value({"text": said, "patient_name": "Mia Li", "nested": json.dumps({"patient": "Mia Li"})})
    assert redactor.counts == {"ticket": 1, "patient": 2, "email": 1}
    assert "+44 20 7946 0958 desk@example.com mia@example.org [redacted:email:" in found["text"]
    assert "Mia Li" not in json.dumps(found)


def test_a_workspace_rule_takes_the_place_of_the_stock_one_of_its_name(tmp_path: Path) -> None:
    own = "[[rule]]\nname = \"email\"\npattern = '([a-z]+@corp[.]example)'\n"
    redactor = Redactor(KEY, rules_of(with_rules(tmp_path / "w", 'rules = "redaction.toml"', own)))
    assert redactor.text("mia@corp.example mia@example.com").endswith(" mia@example.com")
    assert redactor.counts == {"email": 1}


@pytest.mark.parametrize(
    ("section", "own", "said"),
    [
        ('off = ["emails"]', None, "there is no rule 'emails'"),
        ('allow = ["/(/"]', None, "is no RE2 pattern"),
        ('rules = "none.toml"', None, "cannot be read"),
        ('rules = "redaction.toml"', "[[rule]]\nname = \"A b\"\npattern = '(x)'", "names are lower case"),
        ('rules = "redaction.toml"', '[[rule]]\nname = "a"', "either a pattern or a key"),
        ('rules = "redaction.toml"', "[[rule]]\nname = \"a\"\npattern = '(x)(y)'", "exactly one"),
        ('rules = "redaction.toml"', "[[rule]]\nname = \"a\"\npattern = '(x*)'", "empty text"),
        ('rules = "redaction.toml"', "[[rule]]\nname = \"a\"\npattern = '(?=x)(x)'", "no RE2 pattern"),
        ('rules = "redaction.toml"', '[[rule]]\nname = "a"\npattern = \'(x)\'\ncheck = "sum"', "check is one of"),
        ('rules = "redaction.toml"', "[[rule]]\nname = \"a\"\npattern = '(x)'\npersonnal = true", "personnal"),
    ],
)
def test_rules_that_do_not_hold_are_named(tmp_path: Path, section: str, own: str | None, said: str) -> None:
    workspace = with_rules(tmp_path / "w", section, own)
    with pytest.raises(ConfigError, match=said) as caught:
        land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])])
    assert "\n" not in str(caught.value)


def test_the_hash_is_of_what_decides_and_stands_with_each_row(tmp_path: Path) -> None:
    plain = rules_of(with_rules(tmp_path / "a", ""))
    assert plain.hash == stock().hash
    others = [
        rules_of(with_rules(tmp_path / name, section, OWN)).hash
        for name, section in (("b", 'off = ["email"]'), ("c", 'allow = ["x"]'), ("d", 'rules = "redaction.toml"'))
    ]
    assert len({plain.hash, *others}) == 4
    described = OWN.replace("Numbers of our", "Our")
    assert rules_of(with_rules(tmp_path / "e", 'rules = "redaction.toml"', described)).hash == others[2]
    workspace = with_rules(tmp_path / "d", 'rules = "redaction.toml"', OWN)
    land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])])
    assert workspace.lake.read(RECORDS.name, columns=["rules"]).column("rules").to_pylist() == [
        f"{others[2]}.{fingerprint(workspace.redaction_key)}"
    ]


def test_what_is_stored_is_redacted_again_under_other_rules(tmp_path: Path) -> None:
    log = write_lines(
        tmp_path / "log.jsonl",
        [
            call(number, request={"messages": [{"role": "user", "content": f"{number} {said}"}]})
            for number, said in enumerate(("TICKET-123456", SECRETS["email"], f"TICKET-123456 {SECRETS['email']}", "plain"))
        ],
    )
    off, on = (with_rules(tmp_path / name, section, OWN) for name, section in (("off", ""), ("on", 'rules = "redaction.toml"')))
    for workspace in (off, on):
        land(workspace, [log])
    stored, wanted = ({row["record_id"]: row for row in workspace.lake.read(RECORDS.name).to_pylist()} for workspace in (off, on))
    for record_id, row in stored.items():
        redactor = Redactor(on.redaction_key, rules_of(on))
        again = redacted_again(row, redactor, on.identity)
        assert again == {name: wanted[record_id][name] for name in again}
        twice = redacted_again({**row, **again}, redactor, on.identity)
        assert twice == again


SAID = st.sampled_from(
    [AROUND.get(rule, "{}").format(secret) for rule, secret in SECRETS.items()] + ["", "plain", "+44 20 7946 0958"]
)


@st.composite
def _logs(draw: Any) -> list[dict[str, Any]]:
    lines = []
    for number in range(draw(st.integers(1, 3))):
        system, asked, answer, argument = (draw(SAID) for _ in range(4))
        arguments = json.dumps({"api_key": argument, "note": [argument]})
        tools = [{"type": "function", "function": {"name": "f", "description": draw(SAID), "parameters": {}}}]
        tool_call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
        said: dict[str, Any] = {"role": "assistant", "content": answer, "reasoning": draw(SAID), "tool_calls": [tool_call]}
        facts = {"attempt_id": f"attempt-{number} {draw(SAID)}", "task_id": draw(st.one_of(st.none(), SAID))}
        for turn in range(2):
            request, response = {"messages": list(messages), "tools": tools}, {"message": said, "finish_reason": "stop"}
            time = f"2026-11-20T10:00:0{turn}Z"
            lines.append(
                call(
                    number,
                    call_id=f"{number}-{turn}",
                    request=request,
                    response=response,
                    started_at=time,
                    ended_at=time,
                    **facts,
                )
            )
            messages += [said, {"role": "tool", "tool_call_id": "t", "content": draw(SAID)}]
    return lines


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=_logs(), off=st.lists(st.sampled_from(sorted(rule.name for rule in stock().rules)), max_size=12, unique=True))
def test_a_changed_rule_an_allow_list_and_another_key_move_no_id(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], off: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    log = write_lines(folder / "log.jsonl", lines)
    allowed = json.dumps([SECRETS["email"], SECRETS["github_token"]])
    found = []
    sections = ("", f"off = {json.dumps(off)}", f"allow = {allowed}", f"off = {json.dumps([r.name for r in stock().rules])}")
    for number, section in enumerate(sections):
        workspace = with_rules(folder / str(number), section)
        (workspace.folder / KEYS / "redaction").write_text(f"{number}{number}" * 32, encoding="ascii")
        workspace = Workspace.open(workspace.folder)
        landed = land(workspace, [log])
        trajectories.build(workspace, days=landed.days)
        records = workspace.lake.read(RECORDS.name, columns=["record_id", "content_id", "bundle_key"]).to_pylist()
        columns = ["trajectory_id", "bundle_key", "task_key", "context_key", "content_id", "num_gaps", "record_ids"]
        built = workspace.lake.read(TRAJECTORIES.name, columns=columns).to_pylist()
        assert built
        found.append(sorted(json.dumps(row, sort_keys=True) for row in (*records, *built)))
    assert all(rows == found[0] for rows in found)


@pytest.mark.parametrize(
    "said",
    [
        "order 4006381333931, EAN 4006381333931",  # a bar code
        "4111 1 11111 111 1 111 is a row of a matrix",
        "@@ -1,2 +1,3 @@\n+2026-11-30 10:15:01 started\n+20261130101501 started",
        "Co-Authored-By: A <noreply@example.com>, do-not-reply@example.com",
        "loss = x@w.mean(), y@w.detach()",
        "trace 1764086400123456789, span 4.111111111111111",
    ],
)
def test_numbers_of_logs_are_nobodys(said: str) -> None:
    redactor = Redactor(KEY)
    assert redactor.text(said) == said
    assert not redactor.counts


def test_what_people_give_is_still_found() -> None:
    said = [
        "4111111111111111",
        "4111-1111-1111-1111",
        "4111 1111 1111 1111",
        "3782 822463 10005",
        "+44 20 7946 0958",
        "+20 22391 1234",
        "+201001234567",
    ]
    redactor = Redactor(KEY)
    assert all(redactor.text(f"call {text} now") != f"call {text} now" for text in said)
    assert redactor.counts == {"card": 4, "phone": 3}


@pytest.mark.parametrize("spaced", [True, False])
def test_a_secret_behind_an_option_in_a_list_of_arguments(tmp_path: Path, spaced: bool) -> None:
    secret = "Qm4tR8vLp2Xs9" + "KdW1bNz7HyC"
    arguments = [
        "deploy",
        "--token",
        secret,
        "--password",
        "hunter" + "2pass",
        "--name",
        "orders-2",
        "--token",
        "settings.TOKEN_2",
    ]
    wanted = ["deploy", "--token", "", "--password", "", "--name", "orders-2", "--token", "settings.TOKEN_2"]
    redactor = Redactor(KEY)
    found = redactor.value({"args": arguments, "text": json.dumps(arguments), "shown": f"run({arguments!r})"})
    assert [item if "[redacted:" not in item else "" for item in found["args"]] == wanted
    assert redactor.counts == {"option": 6}
    assert secret not in json.dumps(found) and "hunter" not in json.dumps(found)
    # and landing, which searches whole records first, sends it to the walk
    workspace = with_rules(tmp_path / "w", "")
    log = tmp_path / "log.jsonl"
    line = call(1, request={"messages": [{"role": "user", "content": "go"}], "argv": arguments})
    log.write_text(json.dumps(line, separators=None if spaced else (",", ":")) + "\n", encoding="utf-8")
    land(workspace, [log])
    assert secret not in workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw")[0].as_py()
