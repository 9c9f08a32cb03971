"""Reads: every table and its files. Writes: with `fix` what is broken in them. Next: the reader of `nightshift doctor`.

The digest says whether two lakes hold the same (I2, I3): it is taken over the rows, without when and from where they
were delivered, and knows no order of rows and no layout of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines import checkpoints, lineage, tasks
from pipelines.config import Config
from pipelines.doors import damage
from pipelines.errors import LakeError, NightshiftError
from pipelines.schemas import CHECKPOINTS, TABLES, TableSpec
from pipelines.workspace import IDENTITY_VARIABLE, KEYS, REDACTION_VARIABLE, Workspace
from trainer.contract import BatchManifest

TOTAL = "total"
_EMPTY = "empty"

MAX_ROUNDS = 5
"""Looks at one table: each mends what the one before brought to light."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    """settings | keys | damage | tables | doubled | places | lineage | …"""
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


def check(workspace: Workspace, *, deep: bool = False) -> list[Finding]:
    """Every check with what it found, in a fixed order; `deep`: every byte of the tables is read."""
    return [
        *_set_up(workspace),
        *_damage(workspace, deep),
        *_tables(workspace),
        *_counts(workspace),
        *_task_rules(workspace),
        *_lineage(workspace),
        *_invariants(workspace),
    ]


def fix(workspace: Workspace, *, deep: bool = False) -> list[str]:
    """Mend what can be mended without losing anything; what was done, one line each. Doing it twice does it once.

    `deep`: every byte of the tables is read first, so that data files whose bytes were flipped are mended too.
    """
    done: list[str] = []
    for name in sorted(TABLES):
        mended: list[damage.Damage] = []
        for _ in range(MAX_ROUNDS):  # some damage only shows once other damage is mended
            found = [one for one in damage.find(workspace.lake, name, deep=deep) if _can_mend(workspace, one)]
            if not found:
                break
            for one in found:
                lost = _not_to_be_had(workspace, one)
                done.append(damage.mend(workspace.lake, one) + ("" if lost is None else f"; {lost}"))
            mended += found
        if damage.needs_landing_anew(mended):
            number = damage.forget_offsets(workspace.lake)
            done.append(
                f"landing/records: {number} source files are read anew from their beginning by the next `nightshift ingest`"
            )
        elif any(one.loses_rows for one in mended):
            now = "begins anew" if any(one.kind == "no_log" for one in mended) else "is at its last sound version"
            done.append(f"{name}: it {now}; {_cure(name)}")
    try:
        for checkpoint_id, run_id in _without_edges(workspace):
            rows = lineage.edges(workspace, checkpoint_id)
            checkpoints.write_edges(workspace.runs / run_id, rows)
            done.append(f"lineage of {checkpoint_id}: {rows.num_rows} edges are kept in {workspace.runs / run_id} again")
    except LakeError:
        pass  # a table that could not be mended; the check says so
    return done


def _cure(name: str) -> str:
    return (
        "`nightshift ingest` lands what is missing"
        if name.startswith("landing/")
        else "run `nightshift ingest` or the night again"
    )


def _damage(workspace: Workspace, deep: bool) -> Iterator[Finding]:
    """What is wrong with the tables' files, whether or not they open."""
    found = [one for name in sorted(TABLES) for one in damage.find(workspace.lake, name, deep=deep)]
    for one in found:
        lost = _not_to_be_had(workspace, one)
        said = one.detail if lost is None else f"{one.detail}; {lost}"
        if _can_mend(workspace, one):
            said += f"; `nightshift doctor --fix{' --deep' if deep else ''}` mends it"
        elif one.can_mend:
            said += f"; put those log files back and --fix mends it, or move {one.path.parent} away to do without them"
        yield Finding("damage", False, f"{one.table}: {said}")
    if not found:
        yield Finding("damage", True, f"the files of every table are whole{', every byte of them' if deep else ''}")


def _can_mend(workspace: Workspace, one: damage.Damage) -> bool:
    """A table that only lacks its log holds all its rows: nothing is taken out of it that is not read again."""
    return one.can_mend and (one.kind != "no_log" or _not_to_be_had(workspace, one) is None)


def _not_to_be_had(workspace: Workspace, one: damage.Damage) -> str | None:
    """Which of the rows that are lost cannot be read again, since their log files are gone; None where none is known to be."""
    if one.sources is None:
        return "from which log files their rows came cannot be read: what is not there any more cannot be had again"
    gone = {source: num for source, num in one.sources.items() if not workspace.path(source).exists()}
    if not gone:
        return None
    return (
        f"{sum(gone.values())} of its rows cannot be had again: {len(gone)} log file(s) are not there any more, "
        f"{min(gone)} is one"
    )


def _task_rules(workspace: Workspace) -> Iterator[Finding]:
    """Whether everything that is stored was named under the rules in force."""
    try:
        parameters = {"task_rules": tasks.rules_of(workspace).fingerprint}
        number = workspace.queries.run("groups/named_otherwise", parameters).column("num_trajectories")[0].as_py()
    except NightshiftError as problem:
        yield Finding("tasks", False, str(problem))
        return
    if number:
        said = f"the rules that name tasks and runs have changed since {number} trajectories were built"
        yield Finding("tasks", False, f"{said}; `nightshift replay` shows what that changes, with --apply it builds them again")
    else:
        yield Finding("tasks", True, "every trajectory was named under the rules in force")


def _lineage(workspace: Workspace) -> Iterator[Finding]:
    """Each checkpoint's batches are there and hold what they are named by, and its edges are kept beside its run.

    Versions of tables that a checkpoint cites in MLflow may be vacuumed away: these two do not depend on them (I9).
    """
    try:
        rows = workspace.lake.read(CHECKPOINTS.name, ["checkpoint_id", "batches"]).to_pylist()
        missing = _without_edges(workspace)
    except NightshiftError as problem:
        yield Finding("lineage", False, str(problem))
        return
    broken = 0
    for row in rows:
        for batch_id in row["batches"] or ():
            folder = workspace.batches / batch_id
            try:
                BatchManifest.read(folder).verify_rows(folder)
            except (NightshiftError, OSError) as problem:
                broken += 1
                said = f"checkpoint {row['checkpoint_id']} learned from a batch that does not hold: {problem}"
                yield Finding("lineage", False, f"{' '.join(said.split())}; bring {folder} back from a backup")
    for checkpoint_id, run_id in missing:
        broken += 1
        said = f"checkpoint {checkpoint_id} is pinned by no {checkpoints.EDGES_FILE} in {workspace.runs / run_id}"
        yield Finding("lineage", False, f"{said}: a vacuum could take what it cites; `nightshift doctor --fix` writes it")
    if not broken:
        yield Finding("lineage", True, f"{len(rows)} checkpoint(s) cite batches and log lines that are there")


def _without_edges(workspace: Workspace) -> list[tuple[str, str]]:
    rows = workspace.lake.read(CHECKPOINTS.name, ["checkpoint_id", "run_id"]).to_pylist()
    return [
        (row["checkpoint_id"], row["run_id"])
        for row in rows
        if row["run_id"] is not None
        and (workspace.runs / row["run_id"]).is_dir()
        and not (workspace.runs / row["run_id"] / checkpoints.EDGES_FILE).exists()
    ]


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
        if ask.__name__ in invariants.DERIVED:
            broken += "; `nightshift replay --all` shows what deriving it again would mend"
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
    yield _owner(workspace)
    yield from _named(workspace)
    for source in workspace.config.sources:
        path = workspace.path(source.path)
        if not path.exists():
            yield Finding("settings", False, f"source {path} does not exist; mend [[sources]] or mount it")


def _named(workspace: Workspace) -> Iterator[Finding]:
    """What the settings name and a night will want: rubric, verifiers, harness, registry, the champion's adapter."""
    from pipelines import chain, harness
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


def _owner(workspace: Workspace) -> Finding:
    try:
        workspace.claim_lake()
    except NightshiftError as problem:
        return Finding("keys", False, str(problem))
    return Finding("keys", True, "the lake was made with this identity key")


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
