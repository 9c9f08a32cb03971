"""Reads: groups that await rewards, rewards/judgements. Writes: rewards/judgements. Next: combine.

The judgements table is the cache: an id is the hash of the exact request, so asking again costs nothing, and a kill loses
the calls in flight and no more. Replies that could not be used are stored like the others. A group whose attempts are
used up is left without judge scores (quarantined for the night), which takes nothing from what its tests say.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from pipelines import progress
from pipelines.doors.judge import Answer, Ask, judge, judge_name
from pipelines.errors import JudgeReplyError, JudgeUnavailableError
from pipelines.ids import canonical_json
from pipelines.rewards import ruler
from pipelines.schemas import JUDGEMENTS
from pipelines.workspace import Workspace, code_version

EMBEDDED_GROUPS = 2
"""Groups a night where neither a judge nor a number is configured: the embedded model is slow, and near chance."""

CONCURRENCY = 4
"""Requests in flight."""

_GIVE_UP_AFTER = 2
"""Groups in a row about which the judge did not answer at all, before the rest of the night is spared the time-outs."""


@dataclass
class Judged:
    """What judging one call's groups came to."""

    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """Judge scores in 1e-6 by trajectory id, by group id."""
    failed: set[str] = field(default_factory=set)
    """Groups that were to be judged and have no usable reply."""
    num_requests: int = 0
    cost_usd: float | None = None
    """Of the requests with a known price; None where none has one."""


@dataclass(frozen=True)
class _Question:
    request: ruler.Request
    judgement_id: str
    first_attempt: int


def judge_groups(
    workspace: Workspace,
    night: str,
    *,
    rubric: str,
    rubric_hash: str,
    awaiting: pa.Table,
    scored: pa.Table,
    door: AbstractContextManager[Ask] | None = None,
) -> Judged:
    """Judge the best of the awaiting groups, within `judge.groups_per_night`, and store every reply.

    `awaiting`: rows of sql/rewards/awaiting.sql; `scored`: their verdicts; `door`: another judge than the workspace's.
    A judge that cannot be reached is no error: its groups are in `failed`.
    """
    judged = Judged()
    limit = groups_per_night(workspace)
    if limit == 0 or workspace.config.rewards.rule == "tests_only":
        return judged
    about = {"rubric_hash": rubric_hash, "judge": judge_name(workspace), "night": night}
    sized = {**about, "min_judged": workspace.config.groups.min_judged}
    candidates = workspace.queries.run("rewards/judgeable", sized, tables={"awaiting": awaiting, "scored": scored}).to_pylist()
    tonight = set(workspace.queries.run("rewards/asked_tonight", about).column("group_id").to_pylist())
    left = len(candidates) if limit is None else max(limit - len(tonight), 0)
    # those asked before may be answered by the table; those asked tonight are paid for already
    fresh = [row["group_id"] for row in candidates if not row["asked_before"]]
    chosen = [row["group_id"] for row in candidates if row["asked_before"]] + fresh[:left]
    if not chosen:
        return judged
    open_questions: list[_Question] = []
    stored = _stored(workspace, about, chosen)
    for request in _requests(workspace, awaiting, chosen, rubric):
        judgement_id = _judgement_id(workspace, request)
        replies = stored.get(judgement_id, [])
        usable = [row for row in replies if row["status"] == "ok"]
        num_tonight = sum(row["night"] == night for row in replies)
        if usable:
            judged.scores[request.group_id] = json.loads(usable[-1]["scores"])
        elif num_tonight >= workspace.config.judge.max_attempts:
            judged.failed.add(request.group_id)
        elif request.group_id in tonight or left > 0:
            left -= request.group_id not in tonight
            open_questions.append(_Question(request, judgement_id, 1 + max((row["attempt"] for row in replies), default=0)))
    if open_questions:
        _ask_all(workspace, night, rubric_hash, open_questions, judged, door or judge(workspace))
    return judged


def groups_per_night(workspace: Workspace) -> int | None:
    """How many groups may be judged a night; None: all."""
    config = workspace.config.judge
    if config.groups_per_night is None and config.model is None:
        return EMBEDDED_GROUPS
    return config.groups_per_night


def _stored(workspace: Workspace, about: dict[str, str], chosen: list[str]) -> dict[str, list[dict[str, Any]]]:
    table = pa.table({"group_id": pa.array(chosen, pa.string())})
    found: dict[str, list[dict[str, Any]]] = {}
    for row in workspace.queries.run("rewards/judgements", about, tables={"chosen": table}).to_pylist():
        found.setdefault(row["judgement_id"], []).append(row)
    return found


def _requests(workspace: Workspace, awaiting: pa.Table, chosen: list[str], rubric: str) -> Iterable[ruler.Request]:
    """Requests about the chosen groups, in their order."""
    table = pa.table({"group_id": pa.array(chosen, pa.string())})
    attempts: dict[str, dict[str, list[ruler.Message]]] = {}
    tools: dict[str, Any] = {}
    for row in workspace.queries.run("rewards/shown", tables={"awaiting": awaiting, "chosen": table}).to_pylist():
        attempts.setdefault(row["group_id"], {})[row["trajectory_id"]] = json.loads(row["turns"])
        tools[row["group_id"]] = json.loads(row["tools"]) if row["tools"] else None
    for group_id in chosen:
        if group_id in attempts:
            yield ruler.build(
                group_id,
                attempts[group_id],
                rubric=rubric,
                tools=tools[group_id],
                explanation_chars=workspace.config.judge.explanation_chars,
            )


def _parameters(workspace: Workspace) -> dict[str, Any]:
    config = workspace.config.judge
    return {"temperature": config.temperature, "max_tokens": config.max_reply_tokens}


def _judgement_id(workspace: Workspace, request: ruler.Request) -> str:
    exact = [judge_name(workspace), _parameters(workspace), request.messages, request.schema]
    return workspace.identity.of("judgement", canonical_json(exact))


def _ask_all(
    workspace: Workspace,
    night: str,
    rubric_hash: str,
    questions: list[_Question],
    judged: Judged,
    door: AbstractContextManager[Ask],
) -> None:
    """Ask about every group, a few at a time, and store the replies of each as soon as it is through."""
    gone = threading.Event()
    num_silent = 0
    try:
        with (
            door as ask,
            ThreadPoolExecutor(min(CONCURRENCY, len(questions)), thread_name_prefix="judge") as pool,
            progress.bar("judging groups", len(questions)) as advance,
        ):
            waiting = {
                pool.submit(_ask_about, workspace, night, rubric_hash, question, ask, gone): question for question in questions
            }
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                rows: list[dict[str, Any]] = []
                for future in done:
                    group_id, replies = waiting.pop(future).request.group_id, future.result()
                    rows += replies
                    silent = all(row["status"] == "unavailable" for row in replies)
                    num_silent = num_silent + 1 if silent else 0
                    if num_silent >= _GIVE_UP_AFTER:
                        gone.set()
                    if replies and replies[-1]["status"] == "ok":
                        judged.scores[group_id] = json.loads(replies[-1]["scores"])
                    else:
                        judged.failed.add(group_id)
                    _count(judged, replies)
                if rows:
                    workspace.lake.append_missing(JUDGEMENTS.name, pa.Table.from_pylist(rows, schema=JUDGEMENTS.schema))
                advance(len(done))
    except JudgeUnavailableError:  # the door itself did not open: nothing was asked
        judged.failed |= {question.request.group_id for question in questions}


def _count(judged: Judged, replies: list[dict[str, Any]]) -> None:
    judged.num_requests += len(replies)
    prices = [row["cost_usd"] for row in replies if row["cost_usd"] is not None]
    if prices:
        judged.cost_usd = (judged.cost_usd or 0.0) + sum(prices)


def _ask_about(
    workspace: Workspace, night: str, rubric_hash: str, question: _Question, ask: Ask, gone: threading.Event
) -> list[dict[str, Any]]:
    """Rows of rewards/judgements for one group: failures first, a usable reply, if there is one, last."""
    request, messages, rows = question.request, list(question.request.messages), []
    for count in range(workspace.config.judge.max_attempts):
        if gone.is_set():
            break
        answer: Answer | None = None
        scores, status, error = None, "ok", None
        try:
            answer = ask(messages, request.schema)
            scores = ruler.parse(request, answer.text, cut=answer.cut)
        except JudgeReplyError as problem:
            status, error = "bad_reply", str(problem)
            if answer is not None:
                messages = [*request.messages, *ruler.correction(answer.text, problem)]
        except JudgeUnavailableError as problem:
            status, error = "unavailable", str(problem)
        rows.append(
            {
                "judgement_id": question.judgement_id,
                "group_id": request.group_id,
                "rubric_hash": rubric_hash,
                "judge": judge_name(workspace),
                "parameters": orjson.dumps(_parameters(workspace), option=orjson.OPT_SORT_KEYS).decode(),
                "presented": orjson.dumps(request.presented).decode(),
                "attempt": question.first_attempt + count,
                "status": status,
                "error": error,
                "reply": answer.text if answer else None,
                "scores": orjson.dumps(scores, option=orjson.OPT_SORT_KEYS).decode() if scores is not None else None,
                "num_prompt_tokens": answer.num_prompt_tokens if answer else None,
                "num_reply_tokens": answer.num_reply_tokens if answer else None,
                "cost_usd": answer.cost_usd if answer else None,
                "seconds": answer.seconds if answer else None,
                "code_version": code_version(),
                "night": night,
            }
        )
        if status == "ok":
            break
    return rows
