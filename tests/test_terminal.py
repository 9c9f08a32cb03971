"""What is drawn on a terminal: rows that fit stand in a table, wider ones below each other, and no id is ever cut."""

from __future__ import annotations

import pytest

from pipelines import terminal

IDS = [f"trj_{digit * 32}" for digit in "ab"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def draw(rows: list[dict], width: int) -> list[str]:
        monkeypatch.setattr(terminal.console, "width", width)
        terminal.rows(rows)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return draw


def test_rows_that_fit_are_a_table(drawn) -> None:
    rows = [{"lane": "grpo", "trajectories": 7}, {"lane": "sft", "trajectories": 12}]
    assert drawn(rows, 80) == ["lane  trajectories", "grpo             7", "sft             12"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_wider_rows_stand_below_each_other_with_a_rule_between(drawn, width: int) -> None:
    rows = [{"trajectory_id": one, "group_id": one, "task_key": one, "attempt": None, "content": "x" * 5000} for one in IDS]
    lines = drawn(rows, width)
    assert all(len(line) <= width for line in lines)
    assert [line for line in lines if line.startswith("row ")] == [lines[0], lines[6]]
    assert lines[0].startswith("row 1 of 2 ─") and lines[6].startswith("row 2 of 2 ─")
    assert lines[1] == f"trajectory_id  {IDS[0]}" and lines[10] == "attempt        –"
    assert lines[5].startswith("content        xxxx") and lines[5].endswith("x… (5,000 characters)")


def test_one_wide_row_needs_no_rule_and_an_id_is_never_cut(drawn) -> None:
    lines = drawn([{"trajectory_id": IDS[0], "a_name_as_long_as_a_question_may_make_it": IDS[1]}], 40)
    assert lines == [f"trajectory_id                             {IDS[0]}", f"a_name_as_long_as_a_question_may_make_it  {IDS[1]}"]


def test_logged_text_moves_no_cursor(drawn) -> None:
    assert drawn([{"content": "a\nb\x1b[2Jc"}], 80) == ["content", r"a\nb\x1b[2Jc"]


def test_wide_characters_count_by_the_room_that_they_take(drawn) -> None:
    (line,) = drawn([{"content": "語" * 100}], 60)
    assert line.endswith("語… (100 characters)")
    assert len(line) + line.count("語") <= 60
