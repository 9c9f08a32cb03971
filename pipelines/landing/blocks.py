"""Content blocks as Anthropic writes them -> OpenAI chat messages, which `format.uniform` makes turns of.

A message of the user may hold tool results beside text: each result is a message of role `tool`, in order. Results of tools
that ran on the model's server stand inside the assistant's message: they cut it in pieces, since nobody sampled them.
"""

from __future__ import annotations

from typing import Any

from pipelines.landing.decoding import BadPieceError

TOOL_USES = ("tool_use", "server_tool_use", "mcp_tool_use")


def checked(content: Any) -> None:
    """BadPieceError where `content` is neither text nor a list of blocks that the functions below can read."""
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadPieceError("wrong_shape", "content is neither text nor a list of blocks")
    for block in content:
        kind = block.get("type")
        needed = (
            ("id", "name")
            if kind in TOOL_USES
            else ("tool_use_id",)
            if kind == "tool_result"
            else ("text",)
            if kind == "text"
            else ()
        )
        for name in needed:
            if not isinstance(block.get(name), str):
                raise BadPieceError("wrong_shape", f"{name} of a {kind} block is no string")
        if kind == "tool_result" and not _is_result(block.get("content")):
            raise BadPieceError("wrong_shape", "content of a tool_result block is neither text nor a list of parts")


def messages(role: str, content: Any) -> list[dict[str, Any]]:
    """One message's content as one or more chat messages of `role`, results among them as role `tool`."""
    if content is None or isinstance(content, str):
        return [{"role": role, "content": content}] if content else []
    found: list[dict[str, Any]] = []
    open_message: dict[str, Any] | None = None
    for block in content:
        kind = block.get("type")
        if isinstance(block.get("tool_use_id"), str) and (kind == "tool_result" or str(kind).endswith("_tool_result")):
            found.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block.get("content")})
            open_message = None
            continue
        if open_message is None:
            open_message = {"role": role, "content": None}
            found.append(open_message)
        _add(open_message, block)
    return found


def _add(message: dict[str, Any], block: dict[str, Any]) -> None:
    kind = block.get("type")
    if kind in TOOL_USES:
        function = {"name": block.get("name"), "arguments": block.get("input")}
        message.setdefault("tool_calls", []).append({"id": block.get("id"), "function": function})
    elif kind == "thinking":
        message["reasoning"] = (message.get("reasoning") or "") + str(block.get("thinking") or "")
    elif kind != "redacted_thinking":
        part = {"type": "text", "text": block["text"]} if kind == "text" else block
        message["content"] = [*(message["content"] or []), part]


def _is_result(content: Any) -> bool:
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(isinstance(part, dict) for part in content)
