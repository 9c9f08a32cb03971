"""Format `claude_code`: the JSONL files that Claude Code keeps of its sessions, one for the session and one for each subagent.

What makes it hard to read:

- one API message stands on several lines with one message.id, a block a line, and its usage on each of them;
- lines form a tree by uuid and parentUuid. Results of parallel tool calls hang on the line of their own call, which is no
  fork; going back and asking anew is one;
- lines about the session (system, progress, attachment) stand in the tree between messages: they are read for their place
  alone. Those without a uuid can be nobody's parent and are skipped;
- subagents (isSidechain, in files agent-*.jsonl or, in old versions, between the session's own lines) share the session's
  id. Which tool call started one is told by toolUseResult.agentId, by progress lines, or by the prompt being the same text;
- after a compaction the session goes on under a summary, without a parent;
- resumed and forked sessions begin with another session's lines: same uuids, another sessionId. They are marked by
  `forkedFrom` in new versions, and are context then;
- a model called `<synthetic>` is the harness speaking: an API error ends what it answers, and no model ever sees it.

System prompt and tools are not logged. Both come with the version, and the state of the repository is named by nothing but
folder and branch, so these three are the snapshot: attempts at one prompt are compared only where all are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.claude_code_lines import is_api_error
from pipelines.landing.claude_code_session import bundle
from pipelines.landing.content_blocks import checked, turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import checked_moment
from pipelines.landing.opening import read_log

META = {
    "summary",
    "queue-operation",
    "file-history-snapshot",
    "last-prompt",
    "permission-mode",
    "mode",
    "ai-title",
    "custom-title",
    "agent-name",
    "agent-setting",
    "tag",
    "pr-link",
    "worktree-state",
    "content-replacement",
}
"""Lines without a place in the tree, by which a file that begins with them is known."""


class ClaudeCode:
    """The format; see LogFormat."""

    name = "claude_code"
    parser_version = 2
    what = "Claude Code sessions with their subagents, one JSON object per line"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A line among the first has the envelope of a message, or is one of the known notes."""
        if any(_is_line(row) for row in head.rows) or _is_agent_note(head.object):
            return True
        start = head.text[:2000]
        return not head.values and start.startswith(b"{") and b'"parentUuid":' in start and b'"isSidechain":' in start

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line; the note beside a subagent's file is one piece."""
        beginning = read_log(path, 4096)
        if b'"agentType"' in beginning and b'"sessionId"' not in beginning:
            return split_document(path, start, _facts)
        return split_lines(path, start, line, _facts)

    def spell(self, value: Any) -> Spelled:
        """The turns of one line: a piece of an answer, a prompt, or tool results."""
        turns = []
        if value["type"] in ("user", "assistant") and not is_api_error(value):
            turns = turns_of(value["type"], value["message"].get("content"))
        around = [value.get("cwd"), value.get("gitBranch"), value.get("version")]
        return Spelled(turns=turns, snapshot=orjson.dumps(around).decode() if any(around) else None)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The session's paths, and those of its subagents."""
        return bundle(records)


def _is_line(row: dict[str, Any]) -> bool:
    kind, message = row.get("type"), row.get("message")
    if not isinstance(kind, str):
        return False
    if kind in ("user", "assistant") and isinstance(message, dict) and "role" in message:
        return isinstance(row.get("sessionId"), str) and "uuid" in row and "parts" not in message
    if kind == "summary":
        return "leafUuid" in row
    if kind in META:
        return "sessionId" in row or "messageId" in row
    return "isSidechain" in row and "parentUuid" in row and isinstance(row.get("sessionId"), str)


def _is_agent_note(value: dict[str, Any]) -> bool:
    return isinstance(value.get("agentType"), str) and value.keys() <= {
        "agentType",
        "description",
        "worktreePath",
        "name",
        "model",
    }


def _facts(value: Any) -> Facts:
    if not isinstance(value, dict):
        raise BadPieceError("wrong_shape", "no object")
    kind = value.get("type")
    if kind is None and _is_agent_note(value):
        return Facts(skip_reason="meta")
    if not isinstance(kind, str):
        raise BadPieceError("wrong_shape", "type is no string")
    session, uuid = value.get("sessionId"), value.get("uuid")
    time = checked_moment(value.get("timestamp"))
    if not isinstance(uuid, str) or not uuid or not isinstance(session, str) or not session:
        if kind in ("user", "assistant"):
            raise BadPieceError("wrong_shape", "a message without uuid or sessionId")
        return Facts(time=time, skip_reason="meta")
    for name in ("parentUuid", "logicalParentUuid", "agentId"):
        if not isinstance(value.get(name), str | None):
            raise BadPieceError("wrong_shape", f"{name} is no string")
    if kind in ("user", "assistant"):
        message = value.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("id"), str | None):
            raise BadPieceError("wrong_shape", "message is no object, or its id no string")
        checked(message.get("content"))
    # some tools that copy these files mark the subagent in the session's id
    return Facts(bundle_ref=session.partition("#")[0], time=time)
