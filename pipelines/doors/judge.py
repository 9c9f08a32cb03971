"""The door to the judge: the only module that imports litellm, late, because that import costs eight CPU-seconds.

Any LiteLLM model, any OpenAI-compatible URL, or, where no judge is named, the embedded policy server. What comes back is
raw text: what it means is decided in pipelines/rewards/ruler.py, and nothing here turns a failure into a score.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines.errors import EngineError, JudgeUnavailableError
from pipelines.workspace import Workspace

EMBEDDED = "embedded"
"""Name under which judgements of the embedded policy are stored, since its URL and port change."""


@dataclass(frozen=True)
class Answer:
    """One reply of the judge, unread."""

    text: str
    cut: bool
    """It stopped at the token limit."""
    num_prompt_tokens: int | None
    num_reply_tokens: int | None
    cost_usd: float | None
    """None where the model has no known price."""
    seconds: float


Ask = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], Answer]
"""(messages, JSON schema of the reply) -> Answer; raises JudgeUnavailableError. Safe to call from several threads."""


def judge_name(workspace: Workspace) -> str:
    """What judgements are stored under: the configured model, else EMBEDDED and the base model."""
    configured = workspace.config.judge.model
    return configured if configured is not None else f"{EMBEDDED}/{workspace.config.policy.base_model}"


@contextmanager
def judge(workspace: Workspace) -> Iterator[Ask]:
    """The judge of a workspace, for the block: starts the embedded engine where no judge is named.

    JudgeUnavailableError where that engine does not start.
    """
    config = workspace.config.judge
    if config.model is not None:
        key = os.environ.get(config.api_key_env)
        yield _client(workspace, config.model, config.base_url, key)
        return
    from pipelines.doors.engine import engine

    with ExitStack() as running:
        try:
            server = running.enter_context(engine(workspace))
            model = f"openai/{server.base_model()}"
        except EngineError as problem:
            raise JudgeUnavailableError(f"the embedded judge did not start: {problem}") from problem
        yield _client(workspace, model, server.url, None)


def _client(workspace: Workspace, model: str, base_url: str | None, key: str | None) -> Ask:
    config = workspace.config.judge
    # a fixed price map: without it the import tries to fetch one
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    if key is None and base_url is not None:
        key = "none"  # the client insists on one; servers without authentication ignore it

    def ask(messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> Answer:
        started = time.monotonic()
        try:
            response: Any = litellm.completion(
                model=model,
                messages=[dict(message) for message in messages],
                base_url=base_url,
                api_key=key,
                temperature=config.temperature,
                max_tokens=config.max_reply_tokens,
                timeout=config.timeout_seconds,
                response_format={"type": "json_schema", "json_schema": {"name": "ruler", "strict": True, "schema": schema}},
                max_retries=0,  # retries are counted and stored by the caller
                num_retries=0,
                drop_params=True,  # a provider without json_schema still answers; the reply is read strictly anyway
            )
        except Exception as problem:  # litellm raises whatever the provider's client does
            raise JudgeUnavailableError(f"judge {model} did not answer: {_first_line(problem)}", model=model) from problem
        choice = response.choices[0]
        usage = getattr(response, "usage", None)
        return Answer(
            text=choice.message.content or "",
            cut=choice.finish_reason == "length",
            num_prompt_tokens=getattr(usage, "prompt_tokens", None),
            num_reply_tokens=getattr(usage, "completion_tokens", None),
            cost_usd=_cost(litellm, response),
            seconds=time.monotonic() - started,
        )

    return ask


def _cost(litellm: Any, response: Any) -> float | None:
    try:
        return float(litellm.completion_cost(completion_response=response)) or None
    except Exception:  # no price for this model: unknown, which is not 0
        return None


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return (lines[0] if lines else type(problem).__name__)[:300]
