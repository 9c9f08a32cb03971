"""The landing stage: what lands where, what it says about bad input, and that no secret reaches the lake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines import doctor
from pipelines.errors import ConfigError, SourceError, UnknownFormatError, UnknownReferenceError
from pipelines.landing import quarantine
from pipelines.landing.land import land, survey
from pipelines.landing.registry import by_name
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import KEYS, Workspace
from tests.conftest import make_workspace
from tests.landing.lines import attempts, call, item, line, write_lines
from tests.landing.test_redaction import AROUND, SECRETS

ROOT = Path(__file__).resolve().parents[2]


def test_rows_say_where_a_record_stood_and_of_which_day_it_is(workspace: Workspace) -> None:
    logs = workspace.folder / "logs"
    late = call(2, started_at="2026-11-20T23:59:59-02:00", ended_at=None)
    write_lines(logs / "deep" / "log.jsonl", [call(1), b"{torn\n", late])
    (logs / "results.json").write_text(json.dumps([item(1), item(2)], indent=1), encoding="utf-8")
    landed = land(workspace, [logs], day="2026-11-28")
    assert (landed.records, landed.seen, landed.quarantined, landed.skipped) == (4, 0, 1, 0)
    assert landed.formats == {"recorder": 1, "tau_bench": 1}
    assert landed.days == ["2026-11-20", "2026-11-21", "2026-11-28"]
    assert landed.why_nothing is None
    assert landed.versions == {name: workspace.lake.version(name) for name in (RECORDS.name, QUARANTINE.name)}
    rows = sorted(workspace.lake.read(RECORDS.name).to_pylist(), key=lambda row: (row["source"], row["line"]))
    assert [(row["source"], row["line"], row["day"], row["format"]) for row in rows] == [
        ("logs/deep/log.jsonl", 1, "2026-11-20", "recorder"),
        ("logs/deep/log.jsonl", 3, "2026-11-21", "recorder"),
        ("logs/results.json", 2, "2026-11-28", "tau_bench"),
        ("logs/results.json", 52, "2026-11-28", "tau_bench"),
    ]
    for row in rows:
        content = (workspace.folder / row["source"]).read_bytes()
        stood = content[row["byte_start"] : row["byte_end"]]
        assert row["line"] == content[: row["byte_start"]].count(b"\n") + 1
        assert json.loads(stood) == json.loads(row["raw"])
    (bad,) = quarantine.listed(workspace)
    assert (bad["source"], bad["line"], bad["byte_start"], bad["reason"]) == (
        "logs/deep/log.jsonl",
        2,
        len(line(call(1))),
        "bad_json",
    )
    assert quarantine.show(workspace, bad["record_id"])["raw"] == "{torn"
    assert quarantine.counts(workspace) == {"bad_json": 1}
    assert quarantine.listed(workspace, reason="bad_utf8") == []


def test_the_published_tau_bench_file_lands_once(workspace: Workspace, shared_logs: Path) -> None:
    path = shared_logs / "tau_bench" / "sierra_gpt-4o-airline.json"
    assert land(workspace, [path]).records == 200
    before = doctor.digest(workspace)
    again = land(workspace, [path])
    assert (again.records, again.quarantined) == (0, 0)
    assert again.why_nothing is not None
    assert doctor.digest(workspace) == before


def test_a_survey_counts_the_same_and_writes_nothing(workspace: Workspace) -> None:
    logs = workspace.folder / "logs"
    write_lines(logs / "a.jsonl", [call(1), call(2), b"{torn\n"])
    write_lines(logs / "b.jsonl", [call(2), call(3, request={"messages": [{"role": "user", "content": SECRETS["email"]}]})])
    (logs / "note.txt").write_text("hello", encoding="utf-8")
    surveyed = survey(workspace, [logs])
    assert workspace.lake.version(RECORDS.name) is None
    assert (surveyed.records, surveyed.seen, surveyed.quarantined) == (3, 1, 2)
    landed = land(workspace, [logs])
    assert {**vars(surveyed), "versions": landed.versions} == vars(landed)
    assert survey(workspace, [logs]).records == 0


def test_no_secret_reaches_the_lake(workspace: Workspace) -> None:
    said = {rule: AROUND.get(rule, "{}").format(secret) for rule, secret in SECRETS.items()}
    logs = workspace.folder / "logs"
    values: list[object] = []
    for number, text in enumerate(said.values()):
        messages = [{"role": "user", "content": f"see\n{text}"}]
        arguments = json.dumps({"note": f"line\n{text}"})
        tool_call = {"id": "1", "type": "function", "function": {"name": "keep", "arguments": arguments}}
        response = {"message": {"role": "assistant", "content": None, "tool_calls": [tool_call]}, "finish_reason": "stop"}
        values.append(call(number, request={"messages": messages, "tools": [{text: text}]}, response=response))
        values.append(json.dumps({"recorder": 1, "text": text}).encode() + b"\n")  # not the shape
        values.append(b'{"torn": "' + json.dumps(text)[1:-1].encode().replace(b"/", b"\\/") + b"\n")
    write_lines(logs / "log.jsonl", values)
    (logs / "results.json").write_text(
        json.dumps([item(1, info={"text": text}) for text in said.values()], ensure_ascii=True), encoding="utf-8"
    )
    (logs / "unknown.txt").write_text("\n".join(said.values()), encoding="utf-8")
    landed = land(workspace, [logs])
    assert (landed.records, landed.quarantined) == (2 * len(said), 2 * len(said) + 1)
    assert set(landed.redactions) == set(SECRETS)
    held = b""
    for path in Path(workspace.lake.root).rglob("*"):
        if path.is_file():
            held += path.read_bytes()  # the log with its statistics, and names of columns
        if path.suffix == ".parquet":
            held += json.dumps(pq.read_table(path).to_pylist(), default=str, ensure_ascii=False).encode()
            held += json.dumps([json.loads(raw) for raw in _raws(path)], ensure_ascii=False).encode()
    assert b"[redacted:" in held and b"call-1" in held
    found = [
        rule for rule, secret in SECRETS.items() for part in secret.split("\n") if part.encode() in held and part[:5] != "-----"
    ]
    assert found == []


def _raws(path: Path) -> list[str]:
    table = pq.read_table(path)
    return table.column("raw").to_pylist() if "content_id" in table.column_names else []


def test_a_call_whose_text_was_redacted_has_no_token_ids(workspace: Workspace) -> None:
    clean, secret = call(1), call(2, request={"messages": [{"role": "user", "content": f"I am {SECRETS['email']}"}]})
    land(workspace, [write_lines(workspace.folder / "log.jsonl", [clean, secret])])
    raws = [json.loads(raw) for raw in workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()]
    ids = {raw["call_id"]: (raw["prompt_token_ids"], raw["token_ids"], raw["logprobs"]) for raw in raws}
    assert ids == {"call-1": ([1, 2, 3], [4, 5], [-0.5, -0.25]), "call-2": (None, None, None)}


def test_ids_do_not_depend_on_the_redaction_key(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "log.jsonl", [call(1, request={"messages": [{"role": "user", "content": SECRETS["jwt"]}]}), b'{"a": "b@c.de\n']
    )
    found = []
    for name, key in (("one", "22"), ("other", "33")):
        workspace = make_workspace(tmp_path / name)
        (workspace.folder / KEYS / "redaction").write_text(key * 32, encoding="ascii")
        workspace = Workspace.open(workspace.folder)
        land(workspace, [path])
        rows = workspace.lake.read(RECORDS.name).to_pylist()
        rows += workspace.lake.read(QUARANTINE.name).to_pylist()
        found.append(([[row["record_id"], row.get("content_id"), row.get("bundle_key")] for row in rows], rows[0]["raw"]))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_the_configured_sources_are_landed_when_no_path_is_given(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", '[[sources]]\npath = "logs"\nglob = "*.jsonl"\n')
    write_lines(workspace.folder / "logs" / "a.jsonl", [call(1)])
    (workspace.folder / "logs" / "results.json").write_text(json.dumps([item(1)]), encoding="utf-8")
    assert (land(workspace).records, land(workspace).records) == (1, 0)


def test_nothing_to_land_is_said_and_no_error(workspace: Workspace, tmp_path: Path) -> None:
    assert land(workspace).why_nothing == "no [[sources]] are configured in nightshift.toml"
    (tmp_path / "folder").mkdir()
    assert land(workspace, [tmp_path / "folder"]).why_nothing == f"there are no log files in {tmp_path / 'folder'}"
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n")
    landed = land(workspace, [empty])
    assert (landed.formats, landed.why_nothing) == ({"empty": 1}, "1 empty file(s): no records")


def test_a_missing_path_and_an_unknown_file_are_refused_by_name(workspace: Workspace, tmp_path: Path) -> None:
    good, note = write_lines(tmp_path / "log.jsonl", [call(1)]), tmp_path / "note.txt"
    note.write_text("hello", encoding="utf-8")
    with pytest.raises(SourceError, match=r"nowhere\.jsonl does not exist"):
        land(workspace, [good, tmp_path / "nowhere.jsonl"])
    with pytest.raises(UnknownFormatError, match=r"note\.txt is of no known format.*recorder, .*tau_bench"):
        land(workspace, [good, note])
    with pytest.raises(UnknownFormatError, match="no log format is called"):
        land(workspace, [good], format="nonsense")
    with pytest.raises(ConfigError, match="YYYY-MM-DD"):
        land(workspace, [good], day="yesterday")
    with pytest.raises(ConfigError, match="bad_json"):
        quarantine.listed(workspace, reason="nonsense")
    with pytest.raises(UnknownReferenceError):
        quarantine.show(workspace, "rec_0")
    assert workspace.lake.version(RECORDS.name) is None
    assert land(workspace, [good]).records == 1


def test_a_format_that_is_named_is_not_guessed_at(workspace: Workspace, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello\n", encoding="utf-8")
    landed = land(workspace, [note], format="recorder")
    assert (landed.records, landed.quarantined, landed.formats) == (0, 1, {"recorder": 1})


def test_a_log_of_another_format_than_named_is_refused_and_lands_afterwards(workspace: Workspace, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    results = logs / "results.json"
    results.write_text(json.dumps([item(1), item(2)]), encoding="utf-8")
    for paths in ([results], [logs]):
        with pytest.raises(UnknownFormatError, match=r"results\.json is a log of the format tau_bench, not recorder"):
            land(workspace, paths, format="recorder")
    assert workspace.lake.num_rows(QUARANTINE.name) == 0
    assert land(workspace, [logs]).records == 2


def test_a_source_that_is_missing_is_named_as_one(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "workspace", '[[sources]]\npath = "logs"\n')
    with pytest.raises(SourceError, match=r"source .*logs does not exist; mend \[\[sources\]\]"):
        land(workspace)
    (workspace.folder / "logs").mkdir()
    assert (land(workspace).why_nothing or "").startswith(f"there are no log files in {workspace.folder / 'logs'} (")


def test_odd_names_and_deep_nesting_cost_no_other_record(workspace: Workspace) -> None:
    logs = workspace.folder / "logs"
    deep = line(call(1)).replace(b'"tools": null', b'"tools": ' + b"[" * 500 + b"]" * 500)
    write_lines(logs / "a\udcff.jsonl", [deep, call(2)])
    landed = land(workspace, [logs])
    assert (landed.records, landed.quarantined) == (1, 1)
    (bad,) = quarantine.listed(workspace)
    assert (bad["source"], bad["reason"]) == ("logs/a\\udcff.jsonl", "wrong_shape")


def test_an_unknown_file_in_a_folder_is_quarantined_once(workspace: Workspace) -> None:
    logs = workspace.folder / "logs"
    write_lines(logs / "log.jsonl", [call(1)])
    (logs / "note.txt").write_text(f"ask {SECRETS['email']}", encoding="utf-8")
    (logs / "model.bin").write_bytes(b"\x00\x01")
    (logs / ".hidden").write_text("skipped", encoding="utf-8")
    landed = land(workspace, [workspace.folder])  # the workspace holds its own settings, keys and tables too
    assert landed.formats == {"empty": 1, "recorder": 1, "unknown": 3}
    rows = {row["source"]: row for row in quarantine.listed(workspace, reason="unknown_format")}
    assert set(rows) == {"logs/note.txt", "logs/model.bin", "rubrics/default.md"}
    assert "[redacted:email:" in quarantine.show(workspace, rows["logs/note.txt"]["record_id"])["raw"]
    assert land(workspace, [workspace.folder]).quarantined == 0


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_landed(workspace: Workspace, tmp_path: Path) -> None:
    logs = workspace.folder / "logs"
    write_lines(logs / "b.jsonl", [call(1)])
    broken = logs / "a.jsonl"
    broken.symlink_to("/proc/self/mem")  # opens, and fails to read, for every user
    with pytest.raises(SourceError, match=r"a\.jsonl cannot be read \(.*\); mend that and run the same command again"):
        land(workspace, [logs])
    assert workspace.lake.read(RECORDS.name).num_rows == 1
    with pytest.raises(SourceError, match=r"a\.jsonl cannot be read"):
        land(workspace, [broken])
    broken.unlink()
    write_lines(broken, [call(2)])
    assert land(workspace, [logs]).records == 1


def test_a_full_disk_is_one_clear_line_and_costs_nothing(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    noise = "".join(f"{number * 7919 % 1000003:x}" for number in range(200_000))
    results.write_text(json.dumps([item(1, info={"text": noise})]), encoding="utf-8")
    mount = tmp_path / "small"
    mount.mkdir()
    program = (
        "import sys; from pathlib import Path; from tests.conftest import make_workspace\n"
        "from pipelines.errors import LakeError; from pipelines.landing.land import land\n"
        "folder, results = map(Path, sys.argv[1:]); workspace = make_workspace(folder / 'w')\n"
        "fill = folder / 'fill'; fill.write_bytes(bytes(1_800_000))\n"
        "try: land(workspace, [results])\n"
        "except LakeError as problem: print(problem)\n"
        "fill.unlink(); print(land(workspace, [results]).records)\n"
    )
    shell = 'mount -t tmpfs -o size=2m tmpfs "$2" || exit 77; exec "$0" -c "$1" "$2" "$3"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, sys.executable, program]
    try:
        done = subprocess.run([*command, str(mount), str(results)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("no small file system can be mounted here")
    assert done.returncode == 0, done.stderr
    said, records = done.stdout.splitlines()
    assert said.startswith("table landing/records cannot be written: the disk is full; make room")
    assert records == "1"


def test_what_was_stored_is_what_the_attempt_is_made_from(workspace: Workspace) -> None:
    land(workspace, [write_lines(workspace.folder / "log.jsonl", [call(1)])])
    (row,) = workspace.lake.read(RECORDS.name).to_pylist()
    (attempt,) = attempts(by_name(row["format"]), json.loads(row["raw"]))
    assert attempt.turns[-1]["content"] == "ORDER: 1"
