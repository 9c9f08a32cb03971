"""Secrets are planted in a log; after a night, no byte of the workspace but the log and the keys holds one (I12)."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from assets.metadata import facts
from pipelines.ingest import ingest
from pipelines.nights import run_night
from pipelines.reports import Landed
from pipelines.schemas import RECORDS, TRAJECTORIES
from pipelines.workspace import KEYS, Workspace
from tests.assets.conftest import NIGHT, copied
from tests.landing.lines import call, item, write_lines

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


def _lines() -> list[Any]:
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


def test_no_byte_of_the_workspace_holds_a_planted_secret(served: Workspace, tmp_path: Path) -> None:
    workspace = copied(served, tmp_path / "workspace")
    logs = workspace.folder / "logs"
    write_lines(logs / f"{PLANTED['file name']}.jsonl", _lines())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "results.json").write_text(json.dumps([item(1, info={"note": PLANTED["another format"]})]), encoding="utf-8")
    (elsewhere / "note.txt").write_text(f"token {PLANTED['unknown file']}", encoding="utf-8")
    said = json.dumps(ingest(workspace, [elsewhere]))
    outcome = run_night(workspace, NIGHT)
    landed = outcome["reports"]["landing/records"]
    assert landed["quarantined"] == 3 and sum(landed["redactions"].values()) >= 15 * 4
    shown = facts(Landed(**landed))["redactions"].value  # counts per rule in the asset's metadata
    assert isinstance(shown, str) and "| openai_key | 4 |" in shown
    assert workspace.lake.read(TRAJECTORIES.name, columns=["harness"]).column("harness").to_pylist().count("toy_desk") >= 4
    texts = [
        (Path("what the command said"), said.encode()),
        (Path("what the night said"), json.dumps(outcome, default=str).encode()),
    ]
    seen = set()
    for path, content in [*texts, *_contents(workspace.folder)]:
        seen.add(path.suffix)
        found = [name for name, secret in PLANTED.items() for form in _forms(secret) if form in content]
        assert not found, f"{path}: {found}"
    assert {".parquet", ".db", ".json"} <= seen  # the lake, its log, MLflow and Dagster were looked at
    assert (workspace.folder / ".dagster").exists() and (workspace.folder / "mlflow.db").exists()
    raws = workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()
    assert sum("[redacted:" in raw for raw in raws) == 5


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    secret = PLANTED["question"]
    (tmp_path / "a.gz").write_bytes(gzip.compress(secret.encode()))
    with sqlite3.connect(tmp_path / "b.db") as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (?)", (secret,))
    import pyarrow as pa

    pq.write_table(pa.table({"x": [[secret]]}), tmp_path / "c.parquet", compression="zstd")
    (tmp_path / "d.txt").write_text(f"x {secret} y")
    (tmp_path / f"{secret}.e").write_text("")
    hit = {path.suffix for path, content in _contents(tmp_path) if any(form in content for form in _forms(secret))}
    assert hit == {".gz", ".db", ".parquet", ".txt", ".e"}


def _forms(secret: str) -> set[bytes]:
    """A secret as UTF-8 and UTF-16, and its beginning in base64."""
    whole = secret.encode()
    return {whole, secret.encode("utf-16-le"), base64.b64encode(whole)[: len(whole) // 3 * 4]}


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Name and content of every file, packed ones unpacked too; not of the keys, and not of the logs themselves."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or inside.parts[0] in (KEYS, "logs"):
            continue
        content = path.read_bytes()
        yield path, str(inside).encode() + b"\n" + content
        if path.suffix == ".parquet":
            yield path, json.dumps(pq.ParquetFile(path).read().to_pylist(), default=str, ensure_ascii=False).encode()
        elif path.suffix == ".gz":
            yield path, gzip.decompress(content)
        elif content.startswith(b"SQLite format 3\0"):
            with sqlite3.connect(path) as database:  # text that spills over its page is in pieces in the file
                yield path, "\n".join(database.iterdump()).encode()
