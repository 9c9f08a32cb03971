"""Reads: [[rewards.verifiers]], a trajectory. Writes: nothing (score.py stores verdicts). Next: combine.

A verifier answers three ways, and no two are ever mixed up (I11): a score in [0, 1]; that it cannot tell; or it failed,
which is a reason and never 0.0. A verifier that cannot be loaded at all stops the stage: scoring every attempt of the
night as failed would bury the one line that says which file to mend.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config import VerifierConfig
from pipelines.entry_points import code_of, function_of
from pipelines.errors import ConfigError, VerifierError
from pipelines.ids import plain_hash
from pipelines.workspace import Workspace
from trainer.contract import REWARD_UNIT

FAILED = "failed"
"""Reasons of verdicts that start so mean that the verifier broke; all others, that it could not tell."""
NO_OUTCOME = "no_outcome"
CANNOT_TELL = "cannot_tell"
_LONGEST_REASON = 300

Turn = dict[str, Any]
Verify = Callable[[str | None, list[Turn]], Any]


@dataclass(frozen=True)
class Verdict:
    """What one verifier says about one attempt."""

    score: int | None
    """In 1e-6; None where there is none."""
    reason: str | None
    """None with a score; else NO_OUTCOME, CANNOT_TELL, or `failed: …` with what went wrong."""

    @property
    def failed(self) -> bool:
        """The verifier broke, as against having nothing to say."""
        return self.reason is not None and self.reason.startswith(FAILED)


@dataclass(frozen=True)
class Verifier:
    """One configured verifier, ready to be asked."""

    name: str
    kind: str
    verifier_hash: str
    """Of its configuration and the bytes of its entry file: another hash means another verifier, and new verdicts."""
    verify: Verify | None
    """None for `logged_outcome`, which needs no code."""

    def verdict(self, task_id: str | None, turns: list[Turn], outcome: int | None) -> Verdict:
        """Score one attempt: `turns` as stored, `outcome` the log's own in 1e-6 (None where it carries none)."""
        if self.verify is None:
            return Verdict(outcome, None if outcome is not None else NO_OUTCOME)
        try:
            answer = self.verify(task_id, turns)
        except (Exception, SystemExit) as problem:  # whatever the user's code raises is its failure, not the attempt's
            return Verdict(None, _failure(f"{type(problem).__name__}: {problem}"))
        if answer is None:
            return Verdict(None, CANNOT_TELL)
        if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
            return Verdict(None, _failure(f"answered {answer!r}, which is no float; answer with 0.0 to 1.0, or None"))
        score = float(answer)
        if not 0.0 <= score <= 1.0:  # false for NaN and infinities too
            return Verdict(None, _failure(f"answered {score}, which is outside 0.0 to 1.0"))
        return Verdict(round(score * REWARD_UNIT), None)


def load(workspace: Workspace) -> list[Verifier]:
    """The configured verifiers, loaded; ConfigError or VerifierError says which one cannot be."""
    configured = workspace.config.rewards.verifiers
    names = [verifier.name for verifier in configured]
    if len(set(names)) < len(names):
        raise ConfigError(f"[[rewards.verifiers]] name {', '.join(names)}: each needs a name of its own")
    return [_load(workspace, verifier) for verifier in configured]


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """One attempt judged by itself (the held-out evaluation): the minimum of the verifiers that can tell.

    A verifier that failed leaves no score: what it would have said might have been the minimum.
    """
    for verdict in verdicts:
        if verdict.failed:
            return Verdict(None, verdict.reason)
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    return Verdict(min(scores), None) if scores else Verdict(None, verdicts[0].reason if verdicts else CANNOT_TELL)


def passes(workspace: Workspace, score: int) -> bool:
    """Whether a verifier score (1e-6) passes under `rewards.pass_at`."""
    return score >= pass_mark(workspace)


def pass_mark(workspace: Workspace) -> int:
    """`rewards.pass_at` in 1e-6."""
    return round(workspace.config.rewards.pass_at * REWARD_UNIT)


def _load(workspace: Workspace, config: VerifierConfig) -> Verifier:
    described = {"kind": config.kind, "entry": config.entry}
    if config.kind == "logged_outcome":
        return Verifier(config.name, config.kind, plain_hash(described), None)
    file_name, _, function = (config.entry or "").partition(":")
    if not file_name or not function:
        raise ConfigError(f"verifier {config.name}: entry {config.entry!r} is not of the form `file.py:function`")
    path = workspace.path(file_name)

    def fails(detail: str) -> VerifierError:
        return VerifierError(f"verifier {config.name}: {detail}", verifier=config.name)

    code = code_of(path, fails)
    described["code"] = hashlib.sha256(code).hexdigest()
    return Verifier(config.name, config.kind, plain_hash(described), function_of(path, code, function, fails))


def _failure(detail: str) -> str:
    return f"{FAILED}: {' '.join(detail.split())}"[:_LONGEST_REASON]
