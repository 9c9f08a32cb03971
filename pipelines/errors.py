"""Every error that nightshift raises on purpose, one tree:

    NightshiftError                  root; lives in trainer/contract.py so that the trainer shares it
    ├── ContractError                a batch, run or checkpoint breaks the trainer's contract
    │   ├── BatchRefusedError
    │   ├── RunRefusedError
    │   └── CheckpointRefusedError
    ├── ConfigError                  nightshift.toml, a rubric, a key or an argument is wrong
    │   └── IdentityError            this lake was made with another identity key
    ├── SourceError                  a path is missing, unreadable or of no known format
    │   └── UnknownFormatError
    ├── RowWorkerError               a process that makes rows for landing died
    ├── LakeError                    a table cannot be read or written
    │   └── LakeConflictError        other writers won every retry
    ├── NamingError                  a rule that names tasks or runs broke over an attempt
    ├── VerifierError                a verifier crashed or answered nonsense (a failure, never a score of 0)
    ├── JudgeError                   the judge gave no usable answer
    │   ├── JudgeReplyError          it answered, but not what was asked; says what was wrong
    │   └── JudgeUnavailableError    it did not answer
    ├── HarnessError                 the user's harness could not be called
    ├── EngineError                  the policy server did not start, answer or load an adapter
    ├── TrainingError                the trainer died, was killed, or left no manifest
    ├── RegistryError                MLflow is unreachable or refuses
    ├── PromotionRefusedError        the gate, or a stale decision, forbids it
    ├── NightFailedError             a stage of a night failed; carries that stage's line and exit code
    ├── BusyError                    another process holds the lock that this work needs
    └── UnknownReferenceError        lineage, why: nothing in this lake has that name

Each message is one line that says what to do; `ids` carries what it is about. The command line prints the message and
exits with `exit_code`.
"""

from __future__ import annotations

from typing import Any

from trainer.contract import (
    BatchRefusedError,
    CheckpointRefusedError,
    ContractError,
    NightshiftError,
    RunRefusedError,
)

__all__ = [
    "BatchRefusedError",
    "BusyError",
    "CheckpointRefusedError",
    "ConfigError",
    "ContractError",
    "EngineError",
    "HarnessError",
    "IdentityError",
    "JudgeError",
    "JudgeReplyError",
    "JudgeUnavailableError",
    "LakeConflictError",
    "LakeError",
    "NamingError",
    "NightFailedError",
    "NightshiftError",
    "PromotionRefusedError",
    "RegistryError",
    "RowWorkerError",
    "RunRefusedError",
    "SourceError",
    "TrainingError",
    "UnknownFormatError",
    "UnknownReferenceError",
    "VerifierError",
]


class ConfigError(NightshiftError):
    """nightshift.toml, a rubric, a key or an argument is wrong."""

    exit_code = 2


class IdentityError(ConfigError):
    """The lake was made with another identity key: its ids would not match, so nothing is written."""


class SourceError(NightshiftError):
    """A path that was to be read is missing or unreadable."""


class UnknownFormatError(SourceError):
    """No registered log format recognises the file."""


class RowWorkerError(NightshiftError):
    """A process that makes rows for landing died. Nothing is lost: what it had is read again."""


class LakeError(NightshiftError):
    """A table cannot be read or written."""


class LakeConflictError(LakeError):
    """Other writers won every retry of a commit; the same command can simply be run again."""


class NamingError(NightshiftError):
    """A rule of the workspace that names tasks or runs broke over an attempt, or answered what is no name."""


class VerifierError(NightshiftError):
    """A verifier crashed or answered something that is no score."""


class JudgeError(NightshiftError):
    """The judge gave no usable answer for a group."""


class JudgeReplyError(JudgeError):
    """The judge answered, but not what was asked."""


class JudgeUnavailableError(JudgeError):
    """The judge did not answer: connection, time-out, refusal by its server."""


class HarnessError(NightshiftError):
    """The user's harness could not be loaded or called."""


class EngineError(NightshiftError):
    """The policy server did not start, answer or load an adapter."""


class TrainingError(NightshiftError):
    """The trainer died, was killed, or ended without a checkpoint manifest."""


class RegistryError(NightshiftError):
    """MLflow is unreachable or refuses."""


class PromotionRefusedError(NightshiftError):
    """The gate forbids it, or the decision was measured against another champion."""


class NightFailedError(NightshiftError):
    """A stage of the night failed; the message is that stage's own line."""

    def __init__(self, message: str, exit_code: int, stack: str | None, **ids: Any) -> None:
        super().__init__(message, **ids)
        self.exit_code = exit_code
        self.stack = stack
        """Where it failed, for an error that nightshift does not raise on purpose; None for one that it does."""


class BusyError(NightshiftError):
    """Another process holds the lock that this work needs; the message names it."""


class UnknownReferenceError(NightshiftError):
    """Nothing in this lake has that name, or several things begin with it."""

    exit_code = 2
