"""Tool schemas in whatever shape a provider or framework logs them -> OpenAI's shape."""

from __future__ import annotations

from typing import Any

from pipelines.landing.shapes import first, unpacked


def tools_of(value: Any) -> list[Any] | None:
    """Tool schema in a request, in OpenAI's shape; None where it carries none."""
    value = unpacked(value)
    if isinstance(value, list):  # LangChain's callback writes the tools as messages behind the chat
        found = [tool for item in value if (tool := tool_as_message(item)) is not None]
        return [tool_of(tool) for tool in found] or None
    if not isinstance(value, dict):
        return None
    held = first(value, "tools", "functions", "tool_definitions")
    if held is None:
        for name in ("config", "kwargs", "invocation_params", "generationConfig"):
            inner = unpacked(value.get(name))
            if isinstance(inner, dict) and (tools := tools_of(inner)) is not None:
                return tools
        return tools_of(value["messages"]) if isinstance(value.get("messages"), list) else None
    return tool_list(held)


def tool_list(held: Any) -> list[Any] | None:
    """A list of tool schemas, each maybe a JSON string or a Gemini group of declarations, in OpenAI's shape."""
    held = unpacked(held)
    if isinstance(held, dict):
        held = [{"name": name, **tool} if isinstance(tool, dict) else tool for name, tool in held.items()]
    if not isinstance(held, list):
        return None
    found: list[Any] = []
    for tool in map(unpacked, held):
        declared = first(tool, "function_declarations", "functionDeclarations") if isinstance(tool, dict) else None
        found += [tool_of(inner) for inner in declared] if isinstance(declared, list) else [tool_of(tool)]
    return found or None


def tool_of(tool: Any) -> Any:
    """One tool schema in OpenAI's shape; as it is where it has no name."""
    tool = unpacked(tool)
    if not isinstance(tool, dict) or isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return tool
    parameters = first(
        tool, "parameters", "input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema", "args_schema"
    )
    function = {"name": tool["name"], "description": tool.get("description"), "parameters": unpacked(parameters)}
    return {"type": "function", "function": {key: kept for key, kept in function.items() if kept is not None}}


def tool_as_message(item: Any) -> Any:
    """The tool schema that a message of role `tool` is, None for every other."""
    if not isinstance(item, dict) or item.get("role") != "tool":
        return None
    content = unpacked(item.get("content"))
    function = content.get("function") if isinstance(content, dict) else None
    is_schema = isinstance(function, dict) and "name" in function and ("parameters" in function or "description" in function)
    return content if is_schema else None
