"""Secrets in every place of a log where one can stand, and the lines that hold them."""

from __future__ import annotations

import json
from typing import Any

from tests.landing.lines import call

NIGHT = "2026-01-05"

# put together here, so that no scanner takes the file itself for a leak
PLANTED = {
    "system prompt": "sk-" + "proj-system0PromptSecret",
    "question": "ghp" + "_" + "question0Secret" * 3,
    "answer": "hunter" + "2answerpass",
    "escaped": "sk-" + "ant-api03-escaped0Secret0000",
    "tool argument": "plain-tool-" + "argument-secret",
    "JSON in JSON": "plain-inner-" + "json-secret",
    "tool result": "eyJ" + "toolResult0" + ".eyJ" + "toolResult0" + ".signature",
    "tool schema": "AKIA" + "TOOLSCHEMA234567",
    "key": "hf" + "_" + "keyOfAnObject0000keyOfAnObject0000",
    "environment": "plain-environment-" + "secret",
    "task id": "task.secret@" + "example.com",
    "attempt id": "attempt.secret@" + "example.com",
    "file name": "file.secret@" + "example.com",
    "torn line": "xoxb" + "-1234567890-tornLineSecret",
    "escape in a torn line": "glpat" + "-" + "escapeInTornLine0000",
    "wrong shape": "plain-wrong-" + "shape-secret",
    "unknown file": "npm" + "_" + "unknownFile0" * 3,
    "another format": "dapi" + "0123456789abcdef" * 2,
    "card": "4111 1111 " + "1111 1111",
    "account": "GB82 WEST 1234 " + "5698 7654 32",
    "phone": "+44 20 " + "7946 0958",
}


def planted_lines() -> list[Any]:
    arguments = json.dumps({"api_key": PLANTED["tool argument"], "body": json.dumps({"password": PLANTED["JSON in JSON"]})})
    tool_call = {"id": "t", "type": "function", "function": {"name": "keep", "arguments": arguments}}
    messages = [
        {"role": "system", "content": f"Use {PLANTED['system prompt']}."},
        {"role": "user", "content": f"My key is {PLANTED['question']}, card {PLANTED['card']}, account {PLANTED['account']}."},
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "t", "content": f"call {PLANTED['phone']}: {PLANTED['tool result']}"},
    ]
    tools = [{"type": "function", "function": {"name": "keep", "description": PLANTED["tool schema"], "parameters": {}}}]
    answer = {"role": "assistant", "content": f"postgres://app:{PLANTED['answer']}@db/orders and ESCAPED"}
    lines: list[Any] = []
    for number in range(4):
        line = call(
            number,
            call_id=f"planted-{number}",
            attempt_id=f"{number} {PLANTED['attempt id']}",
            harness="toy_desk",
            task_id=PLANTED["task id"],
            policy_version="toy@0",
            request={"messages": messages, "tools": tools, "sampling": {PLANTED["key"]: 1}},
            response={"message": {**answer, "content": f"{answer['content']} {number}"}, "finish_reason": "stop"},
            env={"SOME_API_KEY": PLANTED["environment"]},
            started_at=f"{NIGHT}T10:00:00Z",
            ended_at=f"{NIGHT}T10:00:01Z",
        )
        escaped = "".join(f"\\u{ord(character):04x}" for character in PLANTED["escaped"])
        lines.append(json.dumps(line).replace("ESCAPED", escaped).encode() + b"\n")
    lines.append(f'{{"recorder": 1, "torn": "{PLANTED["torn line"]}\n'.encode())
    lines.append(f'{{"recorder": 1, "torn": "\\u0067{PLANTED["escape in a torn line"][1:]}\n'.encode())
    lines.append({"recorder": 1, "kind": "call", "client_secret": PLANTED["wrong shape"]})
    return lines
