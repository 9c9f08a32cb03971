"""Reads: every table. Writes: nothing. Next: the reader of `nightshift doctor`.

The digest says whether two lakes hold the same (I2, I3): it is taken over the rows, without when and from where they
were delivered, and knows no order of rows and no layout of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Config
from pipelines.errors import LakeError, NightshiftError
from pipelines.schemas import TABLES, TableSpec
from pipelines.workspace import IDENTITY_VARIABLE, KEYS, REDACTION_VARIABLE, Workspace

TOTAL = "total"
_EMPTY = "empty"


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    """settings | keys | tables | doubled | places"""
    ok: bool
    detail: str
    """One line; where not ok it says what to do."""


def digest(workspace: Workspace) -> dict[str, str]:
    """Hash of the canonical rows of each table, and of all tables under TOTAL.

    A row counts with all columns but its table's landing_columns; a table that was never written is an empty one.
    """
    found = {name: _table_digest(workspace, spec) for name, spec in sorted(TABLES.items())}
    found[TOTAL] = hashlib.sha256("\n".join(f"{name} {value}" for name, value in found.items()).encode()).hexdigest()
    return found


def check(workspace: Workspace) -> list[Finding]:
    """Every check with what it found, in a fixed order."""
    return [*_set_up(workspace), *_tables(workspace), *_counts(workspace), *_invariants(workspace)]


def _invariants(workspace: Workspace) -> Iterator[Finding]:
    """What the asset checks ask in every night, asked now."""
    from pipelines import invariants

    for ask in invariants.ALL:
        try:
            found = ask(workspace)
        except NightshiftError as problem:
            yield Finding(ask.__name__, False, str(problem))
            continue
        broken = f"{found.num_broken} of {found.num_looked_at} break {found.invariant}: {', '.join(found.broken)}"
        yield Finding(ask.__name__, not found.broken, broken if found.broken else f"{found.invariant} holds")


def _table_digest(workspace: Workspace, spec: TableSpec) -> str:
    if workspace.lake.handle(spec.name) is None:
        return _EMPTY
    columns = [name for name in spec.schema.names if name not in spec.landing_columns]
    listed = ", ".join(f'"{name}"' for name in columns)
    if "/" in spec.name:
        source, tables = spec.name.replace("/", "."), None
    else:  # a table at the lake's root has no stage to be named by
        source, tables = "handed_in", {"handed_in": workspace.lake.read(spec.name, columns=columns)}
    sql = (
        f"SELECT coalesce(sha256(string_agg(row_hash, '' ORDER BY row_hash)), '{_EMPTY}') AS table_hash FROM "
        f"(SELECT sha256(to_json(row_columns)::VARCHAR) AS row_hash FROM (SELECT {listed} FROM {source}) AS row_columns)"
    )
    return workspace.queries.ask(sql, tables=tables, label=f"digest of {spec.name}").column("table_hash")[0].as_py()


def _set_up(workspace: Workspace) -> Iterator[Finding]:
    try:
        Config.read(workspace.folder)
        yield Finding("settings", True, f"{len(workspace.config.sources)} source(s) configured")
    except NightshiftError as problem:
        yield Finding("settings", False, str(problem))
    for name, variable in (("identity", IDENTITY_VARIABLE), ("redaction", REDACTION_VARIABLE)):
        yield _key(workspace.folder / KEYS / name, name, variable)
    yield from _named(workspace)
    for source in workspace.config.sources:
        path = workspace.path(source.path)
        if not path.exists():
            yield Finding("settings", False, f"source {path} does not exist; mend [[sources]] or mount it")


def _named(workspace: Workspace) -> Iterator[Finding]:
    """What the settings name and a night will want: rubric, verifiers, harness, registry, the champion's adapter."""
    from pipelines import chain, checkpoints, harness
    from pipelines.rewards import verifiers

    def registry() -> None:
        # a store that is a file is made when it is needed
        if not checkpoints.registry(workspace).is_file:
            checkpoints.registry(workspace).champion()

    def champion() -> None:
        policy = chain.champion(workspace)
        if policy.folder is not None and not policy.folder.is_dir():
            raise LakeError(
                f"the adapter of {policy.policy_version} is missing: bring {policy.folder} back, or `nightshift rollback`"
            )

    def load_harness() -> None:
        if workspace.config.harness.entry is not None:
            harness.load(workspace)

    asked = {
        "rubric": workspace.rubric,
        "verifiers": lambda: verifiers.load(workspace),
        "harness": load_harness,
        "registry": registry,
        "champion": champion,
    }
    for name, ask in asked.items():
        try:
            ask()
        except NightshiftError as problem:
            yield Finding("settings", False, str(problem))
        else:
            yield Finding("settings", True, f"the {name} can be used")


def _key(path: Path, name: str, variable: str) -> Finding:
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        return Finding("keys", True, f"the {name} key comes from {variable}")
    if mode & 0o077:
        return Finding("keys", False, f"the {name} key can be read by others (mode {mode:o}): chmod 600 {path}")
    return Finding("keys", True, f"the {name} key is private")


def _tables(workspace: Workspace) -> Iterator[Finding]:
    for name, spec in sorted(TABLES.items()):
        try:
            if workspace.lake.handle(name) is None:
                continue
            num_rows = workspace.lake.read(name, columns=list(spec.key)).num_rows
            yield Finding("tables", True, f"{name}: {num_rows} rows")
        except NightshiftError as problem:
            yield Finding("tables", False, str(problem))


def _counts(workspace: Workspace) -> Iterator[Finding]:
    try:
        doubled = workspace.queries.run("doctor/doubled").to_pylist()
        misplaced = workspace.queries.run("doctor/misplaced").to_pylist()
    except NightshiftError as problem:
        yield Finding("places", False, str(problem))
        return
    if doubled:
        first = doubled[0]
        detail = f"{len(doubled)} record ids stand more than once, {first['record_id']} in {first['table_name']}; report this"
        yield Finding("doubled", False, detail)
    else:
        yield Finding("doubled", True, "every record id stands once")
    for row in misplaced:
        cure = "; run `nightshift ingest` or a night" if row["problem"] == "in no trajectory" else ""
        yield Finding("places", False, f"{row['num_records']} records are {row['problem']}, {row['example']} is one{cure}")
    if not misplaced:
        yield Finding("places", True, "every record is in exactly one place")
