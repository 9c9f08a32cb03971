from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from examples.order_desk import tickets, verifier
from pipelines import harness
from pipelines.config import Config
from pipelines.workspace import Workspace, make_keys

EXAMPLE = Path(tickets.__file__).parent
NUMBER = re.compile(r"\d{5}")


def test_splits_share_neither_templates_nor_numbers() -> None:
    assert len(tickets.TEMPLATES["train"]) >= 12
    assert len(tickets.TEMPLATES["held_out"]) >= 8 and len(tickets.TEMPLATES["audit"]) >= 8
    numbers, templates = {}, {}
    for split in tickets.TEMPLATES:
        drawn = [ticket for seed in range(20) for ticket, _ in tickets.tickets(split, str(seed), 100)]
        numbers[split] = {number for ticket in drawn for number in NUMBER.findall(ticket)}
        templates[split] = {NUMBER.sub("#", ticket) for ticket in drawn}
        assert tickets.EXAMPLE_NUMBER not in numbers[split]
    for one, other in (("train", "held_out"), ("train", "audit"), ("held_out", "audit")):
        assert not numbers[one] & numbers[other]
        assert not templates[one] & templates[other]


@pytest.mark.parametrize("split", list(tickets.TEMPLATES))
def test_a_ticket_holds_the_order_number_and_one_other_in_both_orders(split: tickets.Split) -> None:
    firsts = set()
    for ticket, order in tickets.tickets(split, "0", 60):
        found = NUMBER.findall(ticket)
        assert len(found) == 2 and order in found and found[0] != found[1]
        assert f"rder {order}" in ticket
        firsts.add(found[0] == order)
    assert firsts == {True, False}


def test_files_are_the_same_again_and_hold_no_answers(tmp_path: Path) -> None:
    held_out, audit = tickets.write_eval_sets(tmp_path, 0, 100, 120)
    night = tickets.write_night(tmp_path, "2026-11-20", 0, 12)
    tickets.write_night(tmp_path, "2026-11-21", 0, 12)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    tickets.write_eval_sets(tmp_path, 0, 100, 120)
    tickets.write_night(tmp_path, "2026-11-20", 0, 12)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before
    truth = {row["task_id"]: row["answer"] for row in map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines())}
    assert len(truth) == 100 + 120 + 24
    for path, count in ((held_out, 100), (audit, 120), (night, 12)):
        tasks = harness.read_tasks(path)
        assert len(tasks) == count
        for task in tasks:
            assert set(task) == {"task_id", "ticket"} and truth[task["task_id"]] in task["ticket"]
    tickets.write_eval_sets(tmp_path, 1, 100, 120)
    assert held_out.read_bytes() != before[held_out]


@pytest.mark.parametrize(
    ("answer", "ended", "score"),
    [
        ("ORDER: 71004", True, 1.0),
        ("ORDER: 71004", False, 0.18),
        ("ORDER: 71004.", True, 0.6),
        ("ORDER: 35562", True, 0.3),
        ("ORDER: 35562", False, 0.09),
        ("Your order is 71004", True, 0.3),
        ("ORDER:71004", True, 0.5),
        ("ORDER: 7100", True, 0.2),
        (" ORDER: 71004", True, 0.3),
        ("", True, 0.0),
        ("sorry", False, 0.0),
    ],
)
def test_grades(answer: str, ended: bool, score: float) -> None:
    assert verifier.grade(answer, "71004", ended=ended) == pytest.approx(score)


def test_the_folder_is_a_workspace_whose_verifier_reads_its_own_truth(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    make_keys(folder)
    workspace = Workspace.open(folder)
    assert workspace.config.policy.name == "nightshift-order-desk" and workspace.config.harness.name == "order_desk"
    assert "ORDER:" in workspace.rubric()[0]
    assert harness.load(workspace).__name__ == "rollout"
    assert isinstance(workspace.config, Config) and workspace.config.training.learning_rate == 4e-4
    (workspace.path("truth.jsonl")).write_text('{"task_id": "t", "answer": "71004"}\n')
    namespace: dict = {"__file__": str(folder / "verifier.py"), "__name__": "verifier_of_workspace"}
    exec(compile((folder / "verifier.py").read_text(), str(folder / "verifier.py"), "exec"), namespace)
    shown = {"role": "assistant", "content": "ORDER: 48213", "sampled": False}
    turns = [shown, {"role": "user", "content": "Order 71004?"}]
    answered = {"role": "assistant", "content": "ORDER: 71004", "sampled": True, "finish_reason": "stop"}
    assert namespace["verify"]("t", [*turns, answered]) == 1.0
    assert namespace["verify"]("t", turns) is None
    assert namespace["verify"]("unknown", [*turns, answered]) is None
