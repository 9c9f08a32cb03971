"""Reads: [groups] and [[sources]] task, run, volatile; an attempt with its records. Writes: nothing (trajectories.py stores names).

Which task an attempt is at: what the log says, else what a rule of the workspace finds, else its first request without what is
volatile. Which run it belongs to, where the workspace keeps runs apart. A name counts as it was before redaction; one that
nobody has any more names nothing, since the token in its place moves with the redaction key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import orjson

from pipelines.config import SourceConfig
from pipelines.entry_points import code_of, function_of
from pipelines.errors import ConfigError, NamingError
from pipelines.ids import Identity, canonical_json, plain_hash
from pipelines.landing.format import Attempt
from pipelines.landing.masks import holds_token
from pipelines.landing.naming import Name, Naming, is_path
from pipelines.workspace import Workspace

LOG, RULE, REDACTED, REQUEST, NOTHING = "log", "rule", "redacted", "request", "nothing"
"""reasons.TASK_SOURCES: what named a task."""

_LONGEST = 300

Find = Callable[[list[dict[str, Any]], Sequence["StoredValue"]], Name | None]


@dataclass(frozen=True)
class StoredValue:
    """A record as its rules see it."""

    value: Any
    identities: Mapping[str, Any] | None
    """Kept since redaction changed it; None: it is as it was logged."""


@dataclass(frozen=True)
class Rule:
    """One rule of the workspace, ready to be asked."""

    told: str
    """As it is configured, and where: for messages."""
    described: tuple[str, str | None]
    """Itself and the hash of its code: another one is another rule."""
    find: Find


@dataclass(frozen=True)
class Names:
    """What the rules say of one attempt."""

    task: Name | None = None
    run: Name | None = None


@dataclass(frozen=True)
class TaskRules:
    """Everything that the workspace says about tasks and runs."""

    identity: Identity
    naming: Naming
    task: Rule | None
    run: Rule | None
    of_sources: Mapping[str, Rule]
    """Rules of [[sources]], as they are configured."""

    @cached_property
    def fingerprint(self) -> str | None:
        """Stands with every trajectory, so that those named under other rules are found; None where nothing is configured."""
        rules = [None if rule is None else rule.described for rule in (self.task, self.run)]
        told = [*rules, [rule.described for _, rule in sorted(self.of_sources.items())], self.naming.masks.hash]
        return plain_hash(told) if self.naming or any(rules) or self.of_sources else None

    def names(self, attempt: Attempt, values: Sequence[StoredValue], source: SourceConfig | None) -> Names:
        """What the rules find in an attempt and in its records.

        The log's own task id goes before every rule. NamingError where a rule breaks.
        """
        own = None if source is None or source.task is None else self.of_sources[source.task]
        asked = [] if attempt.task_id is not None else [rule for rule in (own, self.task) if rule is not None]
        if not asked and self.run is None:
            return Names()
        task = next((name for rule in asked if (name := rule.find(attempt.turns, values)) is not None), None)
        return Names(task, None if self.run is None else self.run.find(attempt.turns, values))


def rules_of(workspace: Workspace) -> TaskRules:
    """The rules of a workspace; ConfigError where one names a Python file that cannot be used."""
    groups = workspace.config.groups
    naming = Naming.of(workspace.config)
    made = partial(_rule, workspace, naming)
    return TaskRules(
        identity=workspace.identity,
        naming=naming,
        task=None if groups.task is None else made("[groups] task", groups.task),
        run=None if groups.run is None else made("[groups] run", groups.run),
        of_sources={
            source.task: made("[[sources]] task", source.task) for source in workspace.config.sources if source.task is not None
        },
    )


def _rule(workspace: Workspace, naming: Naming, where: str, rule: str) -> Rule:
    told = f"{where} = {rule!r}"
    if is_path(rule):
        return Rule(told, (rule, None), partial(_at_path, workspace.identity, naming, rule))
    file, _, function = rule.rpartition(":")
    path = workspace.path(file)

    def fails(detail: str) -> ConfigError:
        return ConfigError(f"{told}: {detail}; mend the file, or name another in nightshift.toml")

    code = code_of(path, fails)
    called = partial(_called, workspace.identity, told, function_of(path, code, function, fails))
    return Rule(told, (rule, hashlib.sha256(code).hexdigest()), called)


def _at_path(
    identity: Identity, naming: Naming, path: str, turns: list[dict[str, Any]], values: Sequence[StoredValue]
) -> Name | None:
    del turns
    found = (naming.name(identity, path, stored.value, stored.identities) for stored in values)
    return next((name for name in found if name is not None), None)


def _called(
    identity: Identity, told: str, function: Callable[..., Any], turns: list[dict[str, Any]], values: Sequence[StoredValue]
) -> Name | None:
    """What the user's own code answers; it gets copies, so that it cannot change what is stored."""
    uniform = [{name: part for name, part in turn.items() if name not in INTERNAL} for turn in turns]
    copies = orjson.loads(canonical_json([uniform, [stored.value for stored in values]]))
    try:
        answer = function(*copies)
    except (Exception, SystemExit) as problem:  # whatever the user's code raises is its failure, not this log's
        said = f"{type(problem).__name__}: {problem}"
        raise NamingError(f"{told} broke: {' '.join(said.split())}"[:_LONGEST]) from problem
    if answer is None or answer == "":
        return None
    if not isinstance(answer, str):
        raise NamingError(f"{told} answered {answer!r}, which is no text; answer with a text, or None"[:_LONGEST])
    return Name(answer, None if holds_token(canonical_json(answer)) else identity.name_id(answer))


INTERNAL = frozenset({"id", "reasoning_id", "masked_id"})
"""What a turn carries for identities and no log says."""
