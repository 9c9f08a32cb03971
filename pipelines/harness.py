"""The harness: nightshift never owns the user's agent, it calls it, and records its calls like production's.

A harness is `async def rollout(task, client)` in a file of the workspace ([harness] entry). It may return the attempt's outcome,
a number from 0 to 1, where it knows that: it is logged like production's, for verifiers of the kind `logged_outcome`. `run`
makes attempts at tasks with it, several at a time, and returns one Rollout per attempt, whose fault is named where it has no result.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib.util
import inspect
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from pipelines.budgets import Budget
from pipelines.doors.chat import ChatDoor, Clock, RecorderLog, RecordingClient
from pipelines.errors import EngineError, HarnessError
from pipelines.progress import bar
from pipelines.reasons import PURPOSES
from pipelines.workspace import Workspace

API_KEY_VARIABLE = "NIGHTSHIFT_POLICY_KEY"
"""Key of the policy server, where it asks for one."""

RolloutFunction = Callable[[dict[str, Any], RecordingClient], Awaitable[Any]]


@dataclass(frozen=True)
class Rollout:
    """One attempt, as recorded."""

    task_id: str | None
    """None where the log that the task was found in names none."""
    task_key: str | None
    """None where only what was asked says which task it is; landing finds that."""
    attempt: int
    attempt_id: str
    turns: list[dict[str, Any]]
    """Messages of the last call and its answer; each has `sampled`, and `call` where it was sampled. Empty: no call was made."""
    num_sampled_tokens: int
    num_tokens: int
    """Of its prompts and answers, each call's: what it cost."""
    policy_version: str
    began: str
    """By the log's clock."""
    ended: str
    seconds: float
    """Wall time; for an attempt that was found in the log, time by the log's own clock."""
    fault: str | None
    """timeout, engine_error, harness_error; None: the attempt ran to its end."""
    outcome: float | None = None
    """In [0, 1], as the harness gave it; None where it gave none, or the attempt has a fault."""


def load(workspace: Workspace) -> RolloutFunction:
    """The workspace's rollout function; HarnessError where there is none or it is none."""
    entry = workspace.config.harness.entry
    if entry is None:
        raise HarnessError(
            f"no harness: name one in [harness] entry of {workspace.folder / 'nightshift.toml'} (file.py:function)"
        )
    file, _, name = entry.partition(":")
    path = workspace.path(file)
    spec = importlib.util.spec_from_file_location(f"nightshift_harness_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise HarnessError(f"harness {path} is no Python file; name one in [harness] entry (file.py:function)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:  # the user's file may fail in any way
        raise HarnessError(f"harness {path} cannot be loaded: {type(problem).__name__}: {problem}") from problem
    function = getattr(module, name or "rollout", None)
    if not inspect.iscoroutinefunction(function):
        raise HarnessError(f"harness {entry}: {name or 'rollout'} is no `async def rollout(task, client)`")
    return function


def read_tasks(path: Path) -> list[dict[str, Any]]:
    """Tasks of a JSONL file, each with a task_id of its own as text; HarnessError names the line that does not hold."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as problem:
        raise HarnessError(f"task file {path} cannot be read: {problem.strerror}") from None
    tasks: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = orjson.loads(line)
            task_id = str(task["task_id"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise HarnessError(f"{path}:{number} is no JSON object with a task_id") from None
        if task_id in tasks:
            raise HarnessError(f"{path}:{number} has the task_id {task_id} of an earlier line")
        tasks[task_id] = {**task, "task_id": task_id}
    return list(tasks.values())


def run(
    workspace: Workspace,
    tasks: Sequence[dict[str, Any]],
    *,
    purpose: str,
    policy_version: str,
    attempts: int | Sequence[int],
    log: Path,
    url: str,
    model: str,
    seed: int,
    clock: Clock,
    tag: str = "",
    temperature: float | None = None,
    budget: Budget | None = None,
) -> list[Rollout]:
    """Make `attempts` attempts at each task (one number for all, or one for each) and append them to `log`; returns all of
    them, task by task.

    A task has a `task_id`; where that is None a `task_key` stands for it, and its lines name no task, so that it is known by
    what was asked, as in the log that it came from. `temperature` None: policy.temperature. `budget` None: no bound; else no
    further attempt starts once it is used, and those that were never started are missing from what is returned.

    An attempt's id follows from harness, task, attempt number, purpose, policy version and `tag`. Attempts that the log
    already holds are returned from it instead of being made again, so a run that was cut off goes on where it was; another
    `tag` makes new ones. `seed` fixes what is sampled, equally in every workspace and for every policy. A rollout that
    fails is a Rollout with a fault; EngineError is raised where the server is gone, HarnessError where the log or the
    harness cannot be used. That goes for a harness that fails at every one of several attempts too: then there is a cause
    that can be mended, nothing of them is written, and the same run makes them all again.
    """
    if purpose not in PURPOSES:
        raise HarnessError(f"purpose {purpose!r} is none of {', '.join(PURPOSES)}")
    rollout = load(workspace)
    numbers = [attempts] * len(tasks) if isinstance(attempts, int) else attempts
    wanted = [(task, attempt) for task, number in zip(tasks, numbers, strict=True) for attempt in range(number)]
    if temperature is None:
        temperature = workspace.config.policy.temperature
    run_ = _Run(workspace, rollout, purpose, policy_version, url, model, seed, clock, tag, temperature, budget)
    held = recorded(workspace, log)
    asked = [run_.attempt_id(_name_of(task), attempt) for task, attempt in wanted]
    if len(wanted) > 1 and all(held[attempt_id].fault for attempt_id in asked if attempt_id in held):
        run_.held_back = []
    missing = [entry for entry, attempt_id in zip(wanted, asked, strict=True) if attempt_id not in held]
    if missing:
        made = asyncio.run(run_.make(missing, RecorderLog(log)))
        if made and run_.held_back is not None:
            raise HarnessError(run_.all_failed(made.values()))
        held.update(made)
    return [held[attempt_id] for attempt_id in asked if attempt_id in held]


def recorded(workspace: Workspace, log: Path) -> dict[str, Rollout]:
    """Attempts that a recorder log holds, by attempt_id; a torn line is passed over (landing reports it)."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for line in _lines(log):
        calls.setdefault(line["attempt_id"], []).append(line)
    found = {}
    for attempt_id, lines in calls.items():
        first, last = (datetime.datetime.fromisoformat(lines[index][key]) for index, key in ((0, "started_at"), (-1, "ended_at")))
        found[attempt_id] = _rollout_of(workspace, lines, (last - first).total_seconds())
    return found


@dataclass
class _Run:
    """What all attempts of one run share."""

    workspace: Workspace
    rollout: RolloutFunction
    purpose: str
    policy_version: str
    url: str
    model: str
    seed: int
    clock: Clock
    tag: str
    temperature: float
    budget: Budget | None
    held_back: list[list[dict[str, Any]]] | None = None
    """Lines of faulted attempts for as long as no attempt has gone well; None: one has, and nothing is held back."""
    raised: list[str] = field(default_factory=list)
    """What the harness raised, attempt by attempt."""

    def attempt_id(self, name: str, attempt: int) -> str:
        harness = self.workspace.config.harness.name
        parts = (harness, name, str(attempt), self.purpose, self.policy_version, self.tag)
        return self.workspace.identity.of("attempt", "harness", *parts)

    async def make(self, wanted: Sequence[tuple[dict[str, Any], int]], log: RecorderLog) -> dict[str, Rollout]:
        """The wanted attempts, `concurrency` at a time, in the order given: siblings are in flight together."""
        left, made = iter(wanted), dict[str, Rollout]()
        concurrency = min(self.workspace.config.harness.concurrency, len(wanted))
        try:
            with bar(f"rollouts ({self.purpose})", len(wanted)) as advance:
                async with ChatDoor(self.url, concurrency=concurrency, api_key=os.environ.get(API_KEY_VARIABLE)) as door:

                    async def work() -> None:
                        for task, attempt in left:
                            if self.budget is not None and not await self.budget.admits():
                                return
                            rollout = await self._attempt(task, attempt, door, log)
                            made[rollout.attempt_id] = rollout
                            if self.budget is not None:
                                await self.budget.take(rollout.num_tokens, failed=rollout.fault is not None)
                            advance(1)

                    async with asyncio.TaskGroup() as workers:
                        for _ in range(concurrency):
                            workers.create_task(work())
        except ExceptionGroup as problems:
            raise problems.exceptions[0] from None
        finally:
            log.close()
        return made

    def all_failed(self, made: Iterable[Rollout]) -> str:
        """One line about attempts of which none went well."""
        counts = Counter(rollout.fault for rollout in made)
        listed = ", ".join(f"{count} {fault}" for fault, count in sorted(counts.items(), key=str))
        raised = f"; it raised {self.raised[0][:300]}" if self.raised else ""
        hint = "; or give it more time with [harness] timeout_seconds" if counts["timeout"] else ""
        entry = self.workspace.config.harness.entry
        return f"harness {entry} failed at every attempt ({listed}){raised}; mend that{hint}, and run the same command again"

    def _keep(self, log: RecorderLog, lines: list[dict[str, Any]], fault: str | None) -> None:
        if fault is not None and self.held_back is not None:
            self.held_back.append(lines)
            return
        for earlier in self.held_back or ():
            log.append(earlier)
        self.held_back = None
        log.append(lines)

    async def _attempt(self, task: dict[str, Any], attempt: int, door: ChatDoor, log: RecorderLog) -> Rollout:
        name, started = _name_of(task), time.monotonic()
        identity = {
            "attempt_id": self.attempt_id(name, attempt),
            "harness": self.workspace.config.harness.name,
            "task_id": task["task_id"],
            "attempt": attempt,
            "purpose": self.purpose,
            "policy_version": self.policy_version,
        }
        seed = f"{self.seed}/{self.purpose}/{self.tag}/{name}/{attempt}"
        client = RecordingClient(door, self.model, self.temperature, seed, self.clock, identity)
        outcome, fault, limit = None, None, asyncio.timeout(self.workspace.config.harness.timeout_seconds)
        try:
            async with limit:
                outcome = _outcome(await self.rollout(dict(task), client))
        except TimeoutError:
            fault = "timeout" if limit.expired() else "harness_error"  # the harness may raise one of its own
        except EngineError:
            fault = "engine_error"
        except (Exception, SystemExit) as problem:  # the user's agent may fail in any way: a fault of this attempt alone
            fault = "harness_error"
            self.raised.append(" ".join(f"{type(problem).__name__}: {problem}".split()))
        if door.gone is not None:
            raise door.gone
        if fault is None and not client.lines:
            fault = "harness_error"  # it asked the policy nothing: there is no attempt to grade
        if fault is not None:
            client.mark_fault(fault)
        else:
            client.lines[-1]["outcome"] = outcome
        self._keep(log, client.lines, fault)
        return _rollout_of(self.workspace, client.lines, time.monotonic() - started)


def _outcome(returned: Any) -> float | None:
    """What a rollout returned, as an outcome; None where it is no number: then it says nothing about how well it went."""
    if not isinstance(returned, int | float):
        return None
    if not 0 <= returned <= 1:
        raise ValueError(f"the outcome {returned!r} is outside [0, 1]")
    return float(returned)


def _name_of(task: dict[str, Any]) -> str:
    """What tells this task from the others of a run."""
    return task["task_key"] if task["task_id"] is None else task["task_id"]


def _rollout_of(workspace: Workspace, lines: Sequence[dict[str, Any]], seconds: float) -> Rollout:
    first, last = lines[0], lines[-1]
    task_id = first["task_id"]
    return Rollout(
        task_id=task_id,
        task_key=None if task_id is None else workspace.identity.task_key(first["harness"], task_id),
        attempt=first["attempt"],
        attempt_id=first["attempt_id"],
        turns=_turns(lines),
        num_sampled_tokens=sum(len(line["token_ids"] or ()) for line in lines),
        num_tokens=sum(map(_num_tokens, lines)),
        policy_version=first["policy_version"],
        began=first["started_at"],
        ended=last["ended_at"],
        seconds=seconds,
        fault=last["fault"],
        outcome=last["outcome"] if last["fault"] is None else None,
    )


def _num_tokens(line: dict[str, Any]) -> int:
    """Of prompt and answer, as the server counted them, else as many ids as it sent."""
    usage = line.get("usage") or {}
    pairs = (("prompt_tokens", "prompt_token_ids"), ("completion_tokens", "token_ids"))
    return sum(usage.get(counted) or len(line[ids] or ()) for counted, ids in pairs)


def _turns(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    last = lines[-1]
    turns = [{**message, "sampled": False, "call": None} for message in last["request"]["messages"]]
    for call, line in enumerate(lines[:-1]):
        # an assistant message was sampled where it stands right after a request of this attempt, as it was answered
        asked, answered = line["request"]["messages"], line["response"]
        place = len(asked)
        if answered is None or place >= len(turns) or last["request"]["messages"][:place] != asked:
            continue
        if _same_message(last["request"]["messages"][place], answered["message"]):
            turns[place].update(sampled=True, call=call, finish_reason=answered["finish_reason"])
    if last["response"] is not None:
        message = {key: value for key, value in last["response"]["message"].items() if value is not None or key == "content"}
        turns.append({**message, "sampled": True, "call": len(lines) - 1, "finish_reason": last["response"]["finish_reason"]})
    return turns


def _same_message(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all((one.get(key) or None) == (other.get(key) or None) for key in ("role", "content", "tool_calls"))


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    try:
        content = log.read_bytes()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise HarnessError(f"the log {log} cannot be read: {problem.strerror}") from problem
    for line in content.split(b"\n"):
        try:
            read = orjson.loads(line) if line.strip() else None
        except orjson.JSONDecodeError:
            continue
        if isinstance(read, dict) and read.get("kind") == "call" and read.get("attempt_id"):
            yield read
