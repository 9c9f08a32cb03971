"""Every log format that nightshift reads.

To add one: write `pipelines/landing/<format>.py` with one class that fulfils `format.LogFormat` (jsonl.py, json_array.py
and document.py cut the common kinds of file; give them a function that reads ids, time and bundle off one decoded value
and raises BadPieceError where the value is no such record), add an instance to FORMATS, and put small files of its shape
into tests/landing/formats/test_<format>.py (CONTRIBUTING.md, "Adding a log format"). What a parser must hold:

- `detect` says yes to its own files only, by their content. tests/landing/test_registry.py tries every format's detect
  on every other's lines.
- ids are the vendor's where they are unique, None where they are not; never a position. Where the file's name is the only
  place that names the task, it becomes part of the record's value.
- records of one bundle_ref are read together, in any order, over files and days: `attempts` sorts by what stands in them.
- nothing is dropped: what is no record is a BadRecord, what belongs to no attempt gets a skip_reason.
- only what the logged policy wrote is `sampled`: no simulated users, demonstrations, tool output, repeated prefixes.
- a missing outcome, model or time is None, never a guess; a harness fault is `fault`, never an outcome of 0.
- `unique_calls` names ids only that no two answers in the world share; else honest attempts lose their answers.
- when the meaning of a stored record changes, raise `parser_version`.

What many formats share, to be used and not written again:

| to read | use |
|---|---|
| one value whose type nobody promises: text, name, count, cost, packed JSON; to refuse a record | shapes.py |
| a time in any writing | moments.py (`checked_moment` at landing, `moment` behind it) |
| a line each, a list, a whole file or its items, records deep inside, a stream of events | jsonl.py, json_array.py, document.py, nested.py, sse.py |
| the first three, whichever of them a file is | wrappings.py |
| lines whose session only the file names | session_lines.py |
| Anthropic's content blocks, and a coding agent's that look like them; a stream of them | content_blocks.py; message_events.py |
| items of OpenAI's Responses API | response_items.py |
| chunks of an OpenAI chat stream | chat_chunks.py |
| Gemini's parts | gemini_parts.py |
| messages of a provider that nothing names (traces), their parts and tools | provider_messages.py, message_parts.py, provider_tools.py |
| spans of a trace | spans.py, span_attributes.py, span_attempts.py |
| single calls to a model, each repeating the prompt before it | calls.py (with roots.py and stitching.py) |
| messages that name the one before them, where going back makes a branch | conversation_tree.py |
| a row of entries where a summary may take the place of earlier ones | entries.py |
| examples that nobody sampled | demonstrations.py |
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.errors import UnknownFormatError
from pipelines.landing.anthropic_messages import AnthropicMessages
from pipelines.landing.art_parquet import ArtParquet
from pipelines.landing.atif import Atif
from pipelines.landing.claude_code import ClaudeCode
from pipelines.landing.claude_managed_agents import ClaudeManagedAgents
from pipelines.landing.cline import Cline
from pipelines.landing.codex_cli import CodexCli
from pipelines.landing.copilot_cli import CopilotCli
from pipelines.landing.cursor_cli import CursorCli
from pipelines.landing.droid_cli import DroidCli
from pipelines.landing.format import GIVES, LogFormat
from pipelines.landing.gemini_cli import GeminiCli
from pipelines.landing.head import Head
from pipelines.landing.hermes import Hermes
from pipelines.landing.inspect_ai import InspectAi
from pipelines.landing.kimi_cli import KimiCli
from pipelines.landing.langfuse import Langfuse
from pipelines.landing.langsmith import LangSmith
from pipelines.landing.litellm import LiteLLM
from pipelines.landing.mini_swe_agent import MiniSweAgent
from pipelines.landing.nemo_gym import NemoGym
from pipelines.landing.openai_chat import OpenAIChat
from pipelines.landing.openai_finetune import OpenAIFinetune
from pipelines.landing.openai_responses import OpenAIResponses
from pipelines.landing.openai_stream import OpenAIStream
from pipelines.landing.opencode import OpenCode
from pipelines.landing.openhands import OpenHands
from pipelines.landing.openhands_completions import OpenHandsCompletions
from pipelines.landing.openhands_sdk import OpenHandsSdk
from pipelines.landing.openinference import OpenInference
from pipelines.landing.otlp_genai import OtlpGenai
from pipelines.landing.pi_agent import PiAgent
from pipelines.landing.qwen_cli import QwenCli
from pipelines.landing.recorder import Recorder
from pipelines.landing.sharegpt import ShareGPT
from pipelines.landing.swe_agent import SweAgent
from pipelines.landing.tau2_bench import Tau2Bench
from pipelines.landing.tau_bench import TauBench
from pipelines.landing.vcr_cassette import VcrCassette
from pipelines.landing.vercel_ai import VercelAi

FORMATS: tuple[LogFormat, ...] = (
    AnthropicMessages(),
    ArtParquet(),
    Atif(),
    ClaudeCode(),
    ClaudeManagedAgents(),
    Cline(),
    CodexCli(),
    CopilotCli(),
    CursorCli(),
    DroidCli(),
    GeminiCli(),
    Hermes(),
    InspectAi(),
    KimiCli(),
    Langfuse(),
    LangSmith(),
    LiteLLM(),
    MiniSweAgent(),
    NemoGym(),
    OpenAIChat(),
    OpenAIFinetune(),
    OpenAIResponses(),
    OpenAIStream(),
    OpenCode(),
    OpenHands(),
    OpenHandsCompletions(),
    OpenHandsSdk(),
    OpenInference(),
    OtlpGenai(),
    PiAgent(),
    QwenCli(),
    Recorder(),
    ShareGPT(),
    SweAgent(),
    Tau2Bench(),
    TauBench(),
    VcrCassette(),
    VercelAi(),
)


def by_name(name: str) -> LogFormat:
    """The format of that name; UnknownFormatError lists the names there are."""
    for format in FORMATS:
        if format.name == name:
            return format
    raise UnknownFormatError(f"no log format is called {name!r}; there are: {', '.join(names())}")


def names() -> list[str]:
    """Names of all formats, sorted."""
    return sorted(format.name for format in FORMATS)


def detect(path: Path) -> LogFormat | None:
    """The format of a file by its content, None where no format recognises it. Raises OSError where it cannot be read."""
    head = Head(path)
    return None if head.is_empty else recognised(head)


def recognised(head: Head) -> LogFormat | None:
    """The format of a file whose beginning is read."""
    return next((format for format in FORMATS if format.detect(head)), None)


def describe() -> list[dict[str, Any]]:
    """One row per format for `nightshift formats`: name, what writes it, what its records give (in the order of GIVES)."""
    return [
        {
            "name": format.name,
            "what": format.what,
            "parser_version": format.parser_version,
            "gives": [given for given in GIVES if given in format.gives],
        }
        for format in sorted(FORMATS, key=lambda format: format.name)
    ]
