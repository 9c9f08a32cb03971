"""The rows of one Codex CLI session -> attempts. codex_cli.py says what the rows are."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.format import Bundle, StoredRecord, merged
from pipelines.landing.session_lines import in_order, logged_at

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_call", "tool_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_result", "tool_search_output")
ITEMS = ("message", "reasoning", *CALLS, *OUTPUTS)
CONTEXTUAL = ("<", "# AGENTS.md")
"""How the user's messages begin that the harness wrote."""
COPYING = datetime.timedelta(seconds=1)
"""How long it takes at most to write a fork's copied history; no model answers that fast."""


def entry(row: dict[str, Any]) -> tuple[str, Any]:
    """Kind and content of a row, with or without its envelope."""
    if "payload" in row:
        return str(row.get("type")), row["payload"]
    if row.get("type") is None:
        return "session_meta", row
    return ("response_item", row) if row["type"] in ITEMS else (str(row["type"]), row)


def bundle(records: Sequence[StoredRecord]) -> Bundle:
    """The attempts of one session."""
    rows = in_order(records)
    return _Conversation(rows).bundle()


class _Conversation:
    """Goes through the rows and makes one node of each message."""

    def __init__(self, rows: Sequence[StoredRecord]) -> None:
        self.rows = rows
        self.nodes: list[Node] = []
        self.tail: Node | None = None
        self.system: list[dict[str, Any]] = []
        self.pieces: list[dict[str, Any]] = []
        self.answer: Node | None = None
        """The answer that is being put together."""
        self.last_answer: Node | None = None
        self.model: str | None = None
        self.usage: Any = None
        self.prompts: list[Node] = []
        own = [row for row in rows if _is_own(row)]
        foreign = any(entry(row.value["row"])[0] == "session_meta" and not _is_own(row) for row in rows)
        begun = logged_at(own[0]) if own else None
        self.copied_until = begun + COPYING if foreign and begun is not None else None
        self.own = own[0] if own else None

    def bundle(self) -> Bundle:
        """All attempts."""
        rows = list(self.rows)
        if self.own is not None:  # whatever times a copied history has, the system prompt stands before it
            rows.remove(self.own)
            rows.insert(0, self.own)
        for row in rows:
            kind, payload = entry(row.value["row"])
            if kind == "session_meta":
                self._meta(row, payload)
            elif kind == "compacted":
                self._close()
                came_from = self.tail
                node = self._add(row, [*self.system, *row.spelled.turns], begins=True)
                node.link, node.came_from = "compaction", came_from.key if came_from else None
            elif kind == "response_item":
                self._item(row, payload)
            elif kind == "event_msg":
                self._event(row, payload)
            else:
                self.model = payload.get("model") if isinstance(payload.get("model"), str) else self.model
                self._note(row)
        self._close()
        return bundle_of(self.nodes, {})

    def _meta(self, row: StoredRecord, payload: dict[str, Any]) -> None:
        if row is not self.own:
            self._note(row)
            return
        self.system = row.spelled.turns
        node = self._add(row, self.system)
        node.key, node.snapshot = "session", row.spelled.snapshot
        if isinstance(payload.get("source"), dict) and "subagent" in payload["source"]:
            node.link = "subagent"

    def _item(self, row: StoredRecord, payload: dict[str, Any]) -> None:
        by_model = payload["type"] not in OUTPUTS and (payload["type"] != "message" or payload["role"] == "assistant")
        if not by_model:
            self._close()
            node = self._add(row, row.spelled.turns)
            if payload["type"] == "message" and payload["role"] == "user":
                text = row.spelled.turns[0].get("content")
                if not (isinstance(text, str) and text.startswith(CONTEXTUAL)):
                    self.prompts.append(node)
            return
        if self.answer is None:
            self.answer = self._add(row, [])
            self.answer.model = self.model
            self.answer.sampled = not self.answer.copied
            self.last_answer = self.answer
        else:
            self._keep(self.answer, row)
        self.pieces += row.spelled.turns

    def _event(self, row: StoredRecord, payload: dict[str, Any]) -> None:
        kind = payload["type"]
        if kind == "token_count":
            self._note(row)
            self._count(payload.get("info"))
            return
        self._close()
        if kind == "thread_rolled_back":
            self._note(row)
            num_turns = payload.get("num_turns")
            if isinstance(num_turns, int) and 0 < num_turns <= len(self.prompts):
                taken_back = self.prompts[-num_turns]
                self.prompts = self.prompts[:-num_turns]
                self.tail = next((node for node in self.nodes if node.key == taken_back.parent), None)
            return
        self._add(row, []).fault = "aborted" if kind == "turn_aborted" else "model_error"

    def _count(self, told: Any) -> None:
        """Usage of the last answer; it is told again, with the same total, whenever the screen shows the limits."""
        if not isinstance(told, dict) or self.last_answer is None:
            return
        last, total = told.get("last_token_usage"), told.get("total_token_usage")
        if not isinstance(last, dict) or (total is not None and total == self.usage):
            return
        self.usage = total
        node = self.last_answer
        prompt, reply = last.get("input_tokens"), last.get("output_tokens")
        if isinstance(prompt, int) and isinstance(reply, int):
            node.num_prompt_tokens = (node.num_prompt_tokens or 0) + prompt
            node.num_reply_tokens = (node.num_reply_tokens or 0) + reply

    def _close(self) -> None:
        if self.answer is not None and self.pieces:
            self.answer.turns = [merged(self.pieces)]
            empty = not any(self.answer.turns[0].get(name) for name in ("content", "tool_calls", "reasoning"))
            if empty:  # encrypted reasoning and nothing else
                self.answer.turns, self.answer.sampled = [], False
        self.answer, self.pieces = None, []

    def _add(self, row: StoredRecord, turns: list[dict[str, Any]], *, begins: bool = False) -> Node:
        before = None if begins else self.tail
        time = logged_at(row)
        node = Node(
            key=row.record_id,
            parent=before.key if before else None,
            order=(len(self.nodes),),
            turns=turns,
            copied=self.copied_until is not None and time is not None and time <= self.copied_until,
        )
        self._keep(node, row)
        self.nodes.append(node)
        self.tail = node
        return node

    def _note(self, row: StoredRecord) -> None:
        """A row that is no message goes with the message before it."""
        if self.tail is None:
            self._add(row, [])
        else:
            self._keep(self.tail, row)

    def _keep(self, node: Node, row: StoredRecord) -> None:
        node.record_ids.append(row.record_id)
        if (time := logged_at(row)) is not None:
            node.started_at = min(node.started_at or time, time)
            node.ended_at = max(node.ended_at or time, time)


def _is_own(row: StoredRecord) -> bool:
    kind, payload = entry(row.value["row"])
    return kind == "session_meta" and (payload.get("id") or payload.get("session_id")) == row.value["session"]
