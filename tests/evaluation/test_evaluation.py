"""Stage 8 through a real harness against a policy server that answers by rule: what is asked, stored, reused and left without a score."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines import chain, evaluation, promotion
from pipelines.errors import HarnessError, PromotionRefusedError
from pipelines.schemas import EVALUATION
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.night_rows import NIGHT, checkpoint_row, day_after, write_held_out

NUM_TASKS = 8
HARNESS = """
async def rollout(task, client):
    await client.chat([{"role": "user", "content": task["task_id"]}])
"""
VERIFIER = """
def verify(task_id, turns):
    answer = turns[-1]["content"]
    if answer == "crash":
        raise RuntimeError("no such ticket")
    return 1.0 if answer == "right" else 0.0
"""


class PolicyServer:
    """An OpenAI-compatible server: the base model answers every fourth task right, every adapter all but the eighth."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        """(model, task_id, seed) of every completion."""
        self.adapters: list[str] = []
        self.answers: dict[str, str | int] = {}
        """By task_id, what is answered instead of the rule: a text, or an HTTP status."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply(200, {"data": [{"id": "toy"}, *({"id": name, "parent": "toy"} for name in outer.adapters)]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("/load_lora_adapter"):
                    outer.adapters.append(body["lora_name"])
                    self._reply(200, {})
                    return
                task_id = body["messages"][-1]["content"]
                outer.asked.append((body["model"], task_id, body["seed"]))
                number = int(task_id.rpartition("-")[2])
                right = number % 4 == 0 if body["model"] == "toy" else number % 8 != 7
                answer = outer.answers.get(task_id, "right" if right else "wrong")
                if isinstance(answer, int):
                    self._reply(answer, {"error": {"message": "refused"}})
                    return
                choice = {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer},
                    "finish_reason": "stop",
                    "token_ids": [1, 2],
                }
                self._reply(200, {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})

            def _reply(self, status: int, content: dict) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # a night's rollouts come all at once

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    served = PolicyServer()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()


@pytest.fixture
def workspace(tmp_path: Path, server: PolicyServer) -> Workspace:
    folder = tmp_path / "workspace"
    write_held_out(folder, NUM_TASKS)
    write_held_out(folder, 4, name="audit.jsonl")
    (folder / "harness.py").write_text(HARNESS)
    (folder / "verifier.py").write_text(VERIFIER)
    return make_workspace(
        folder,
        f"""
[policy]
name = "agent"
base_url = "{server.url}"
[harness]
name = "desk"
entry = "harness.py:rollout"
[[rewards.verifiers]]
name = "v"
kind = "python"
entry = "verifier.py:verify"
[evaluation]
held_out = "held_out.jsonl"
audit = "audit.jsonl"
min_tasks = 8
""",
    )


def _results(workspace: Workspace, checkpoint_id: str) -> list[dict]:
    rows = workspace.lake.read(EVALUATION.name).sort_by([("task_id", "ascending"), ("attempt", "ascending")]).to_pylist()
    return [row for row in rows if row["checkpoint_id"] == checkpoint_id]


def test_challenger_and_champion_answer_the_same_tasks_under_the_same_seeds(workspace: Workspace, server: PolicyServer) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    evaluated = evaluation.evaluate(workspace, NIGHT)
    assert (evaluated.checkpoint_id, evaluated.champion_id, evaluated.num_tasks) == ("ckp_1", "base", NUM_TASKS)
    assert (evaluated.challenger_pass_rate, evaluated.champion_pass_rate) == (0.875, 0.25)
    assert (evaluated.failures, evaluated.reused) == (0, 0)
    by_model = {model: sorted((task, seed) for m, task, seed in server.asked if m == model) for model in ("toy", "ckp_1")}
    assert by_model["toy"] == by_model["ckp_1"] and len(set(by_model["toy"])) == 2 * NUM_TASKS
    (first, *_) = _results(workspace, "ckp_1")
    assert (first["score"], first["passed"], first["reason"], first["num_sampled_tokens"]) == (1_000_000, True, None, 2)
    assert first["task_key"] == workspace.identity.task_key("desk", first["task_id"])


def test_the_lines_land_like_any_source_dated_on_their_night_and_marked_evaluation(workspace: Workspace) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    evaluation.evaluate(workspace, NIGHT)
    lines = [json.loads(line) for line in (workspace.folder / "logs" / f"evaluation-{NIGHT}.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 2 * NUM_TASKS
    assert {(line["purpose"], line["started_at"][:10]) for line in lines} == {("evaluation", NIGHT)}
    assert {line["policy_version"] for line in lines} == {"agent@0", "agent@1"}
    assert {row["attempt_id"] for row in _results(workspace, "ckp_1")} <= {line["attempt_id"] for line in lines}


def test_answers_are_asked_for_once_the_champions_on_the_night_that_promoted_it(
    workspace: Workspace, server: PolicyServer
) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    evaluation.evaluate(workspace, NIGHT)
    assert promotion.settle(workspace, NIGHT)[0]["decision"] == "promote"
    checkpoint_row(workspace, "ckp_2", 2, night=day_after(NIGHT, 1), parent="ckp_1")
    server.asked.clear()
    tomorrow = evaluation.evaluate(workspace, day_after(NIGHT, 1))
    assert (tomorrow.champion_id, tomorrow.reused) == ("ckp_1", 2 * NUM_TASKS)
    assert {model for model, _, _ in server.asked} == {"ckp_2"}
    server.asked.clear()
    again = evaluation.evaluate(workspace, NIGHT)  # its challenger is the champion by now, and is not measured against itself
    assert (again.checkpoint_id, again.champion_id, again.reused) == ("ckp_1", "base", 4 * NUM_TASKS)
    assert server.asked == []


def test_a_failure_is_a_reason_and_no_score(workspace: Workspace, server: PolicyServer) -> None:
    server.answers = {"task-000": 503, "task-001": "crash"}
    checkpoint_row(workspace, "ckp_1", 1)
    evaluated = evaluation.evaluate(workspace, NIGHT)
    assert evaluated.failures == 8 and evaluated.challenger_pass_rate == pytest.approx(5 / 6)
    failed = {row["task_id"]: row for row in _results(workspace, "ckp_1") if row["reason"]}
    assert {task_id: (row["score"], row["passed"]) for task_id, row in failed.items()} == {
        "task-000": (None, None),
        "task-001": (None, None),
    }
    assert failed["task-000"]["reason"] == "fault: engine_error"
    assert failed["task-001"]["reason"] == "failed: RuntimeError: no such ticket"
    row, _ = promotion.settle(workspace, NIGHT)
    assert (row["decision"], row["reason"], row["num_tasks"]) == ("hold", "too_few_tasks", 6)


def test_an_outcome_of_the_harness_is_what_logged_outcome_reads(workspace: Workspace, server: PolicyServer) -> None:
    settings = (workspace.folder / "nightshift.toml").read_text()
    settings = settings.replace('kind = "python"\nentry = "verifier.py:verify"', 'kind = "logged_outcome"')
    (workspace.folder / "nightshift.toml").write_text(settings)
    code = HARNESS.replace("await", "answer = await") + '    return float(answer["content"] == "right")\n'
    (workspace.folder / "harness.py").write_text(code)
    opened = Workspace.open(workspace.folder)
    checkpoint_row(opened, "ckp_1", 1)
    evaluated = evaluation.evaluate(opened, NIGHT)
    assert (evaluated.challenger_pass_rate, evaluated.champion_pass_rate, evaluated.failures) == (0.875, 0.25, 0)


def test_a_changed_verifier_or_harness_starts_the_set_anew(workspace: Workspace, server: PolicyServer) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    evaluation.evaluate(workspace, NIGHT)
    (workspace.folder / "verifier.py").write_text(VERIFIER.replace('== "right"', '== "wrong"'))
    evaluated = evaluation.evaluate(workspace, NIGHT)
    assert (evaluated.challenger_pass_rate, evaluated.champion_pass_rate, evaluated.reused) == (0.125, 0.75, 0)
    (workspace.folder / "harness.py").write_text(HARNESS + "\n")
    assert evaluation.evaluate(workspace, NIGHT).reused == 0
    assert len(server.asked) == 3 * 2 * 2 * NUM_TASKS


def test_a_decision_needs_answers_to_the_set_as_it_is(workspace: Workspace) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    evaluation.evaluate(workspace, NIGHT)
    (workspace.folder / "verifier.py").write_text(VERIFIER + "\n")
    with pytest.raises(PromotionRefusedError, match="was never measured on the held-out tasks as they are now"):
        promotion.settle(workspace, NIGHT)


def test_by_hand_measures_what_is_missing_first(workspace: Workspace, server: PolicyServer) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    with pytest.raises(PromotionRefusedError, match="agent@1 was never measured"):
        promotion.settle(workspace, NIGHT)
    server.answers = {f"task-{number:03d}": "wrong" for number in range(NUM_TASKS)}
    with pytest.raises(PromotionRefusedError, match=r"the gate holds agent@1: not_better, \+0\.000 on 8 tasks"):
        promotion.promote(workspace, 1)
    assert len(_results(workspace, "ckp_1")) == len(_results(workspace, chain.BASE)) == 2 * NUM_TASKS


def test_the_audit_measures_one_policy_on_its_own_set(workspace: Workspace, server: PolicyServer) -> None:
    checkpoint_row(workspace, "ckp_1", 1)
    audited = evaluation.audit(workspace, chain.BASE, NIGHT)
    assert (audited.checkpoint_id, audited.eval_set, audited.num_tasks) == ("base", "audit", 4)
    assert audited.challenger_pass_rate == 0.25 and audited.champion_pass_rate is None
    assert {model for model, _, _ in server.asked} == {"toy"}
    rate = evaluation.pass_rate(workspace, chain.BASE, "audit")
    assert rate is not None and rate.rate == 0.25 and 0 <= rate.low < 0.25 < rate.high
    assert evaluation.pass_rate(workspace, "ckp_1", "audit") is None
    assert evaluation.pass_rate(workspace, chain.BASE) is None  # the gate's set is another


def test_nothing_to_measure_is_a_normal_result(workspace: Workspace, tmp_path: Path) -> None:
    nothing = evaluation.evaluate(workspace, NIGHT)
    assert (
        nothing.checkpoint_id is None
        and nothing.why_nothing == f"night {NIGHT} trained no checkpoint, so there is nobody to measure"
    )
    bare = make_workspace(tmp_path / "bare", '[policy]\nname = "agent"\n')
    checkpoint_row(bare, "ckp_1", 1)
    assert "no harness is configured" in (evaluation.evaluate(bare, NIGHT).why_nothing or "")
    harnessed = make_workspace(tmp_path / "harnessed", '[policy]\nname = "agent"\n[harness]\nentry = "harness.py:rollout"\n')
    checkpoint_row(harnessed, "ckp_1", 1)
    assert "no held_out tasks are configured" in (evaluation.evaluate(harnessed, NIGHT).why_nothing or "")
    assert "no audit tasks are configured" in (evaluation.audit(harnessed, chain.BASE, NIGHT).why_nothing or "")


def test_a_bad_task_file_is_named_with_its_line(workspace: Workspace) -> None:
    with (workspace.folder / "held_out.jsonl").open("a") as stream:
        stream.write("not json\n")
    checkpoint_row(workspace, "ckp_1", 1)
    with pytest.raises(HarnessError, match=r"held_out\.jsonl:9 is no JSON object"):
        evaluation.evaluate(workspace, NIGHT)


def test_nights_that_run_as_nights_do_are_dated_now() -> None:
    now = datetime.datetime.now(datetime.UTC)
    yesterday = (now.date() - datetime.timedelta(days=1)).isoformat()
    assert abs(evaluation.dated(yesterday)() - now) < datetime.timedelta(minutes=1)
    assert evaluation.dated("2020-02-03")().isoformat()[:13] == "2020-02-03T23"
