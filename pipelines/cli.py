"""The `nightshift` command: each command opens the workspace, calls one stage or question, and shows the answer.

Every command takes `--json` (the answer alone on standard output) and `--workspace`; errors are one line on standard
error that says what to do, and a non-zero exit.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import errno
import functools
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from pipelines import show, terminal
from pipelines.errors import ConfigError, NightFailedError, NightshiftError
from pipelines.workspace import Workspace

WORKSPACE_VARIABLE = "NIGHTSHIFT_WORKSPACE"

app = typer.Typer(
    name="nightshift",
    help="Turns the log that an agent harness already writes into a better agent, every night.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON and nothing else on standard output.")]
Where = Annotated[
    Path,
    typer.Option("--workspace", "-w", envvar=WORKSPACE_VARIABLE, help="The workspace; default: the current folder."),
]


def main() -> None:
    """Run the command line."""
    try:
        sys.exit(app(prog_name="nightshift", standalone_mode=False))
    except TyperException as problem:
        _usage(problem)
    except typer.Abort:
        _fail("ended before it was done; run the same command again", 130)
    except NightFailedError as problem:
        if problem.stack:
            print(problem.stack, file=sys.stderr)
        _fail(str(problem), problem.exit_code)
    except NightshiftError as problem:
        _fail(str(problem), problem.exit_code)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        _fail(f"{problem.strerror}: {problem.filename or 'the workspace'}; nothing was lost, make room and run it again", 1)


def _usage(problem: TyperException) -> NoReturn:
    """A command line that cannot be read: help where nothing was asked, else one line."""
    context = getattr(problem, "ctx", None)
    said = problem.format_message() if hasattr(problem, "format_message") else str(problem)
    if not said:  # a command that only has subcommands, alone: typer has printed its help
        sys.exit(2)
    command = "nightshift" if context is None else context.command_path
    _fail(f"{said.rstrip('.')}; see `{command} --help`", getattr(problem, "exit_code", 2))


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"nightshift: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _open(folder: Path) -> Workspace:
    workspace = Workspace.open(folder)
    from pipelines.promotion import repair_alias_if_behind

    problem = repair_alias_if_behind(workspace)
    if problem is not None:
        print(f"nightshift: the alias in MLflow does not follow the champion yet: {problem}", file=sys.stderr)
    return workspace


def _answer(as_json: bool, content: Any, shown: Any) -> None:
    """Print an answer; `shown` draws it for people."""
    if as_json:
        print(json.dumps(_finite(content), indent=2, default=str, allow_nan=False))
    else:
        shown(content)


def _ended() -> Callable[[float], bool]:
    """Waits so many seconds and says whether SIGINT or SIGTERM came: long work then ends between two steps."""
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    return told.wait


def _finite(content: Any) -> Any:
    """The same, with floats that JSON has no number for as text, and decimals (the engine's sums of integers) as numbers."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, decimal.Decimal) and content.is_finite():
        return int(content) if content == content.to_integral_value() else float(content)
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


@app.command()
def init(folder: Path, as_json: AsJson = False) -> None:
    """Write a new workspace: settings, a rubric, a harness and a verifier to start from, the keys."""
    from pipelines.init import make_workspace

    workspace = make_workspace(folder)
    files = sorted(str(path.relative_to(workspace.folder)) for path in workspace.folder.glob("*") if path.name != "lake")
    _answer(as_json, {"workspace": str(workspace.folder), "files": files}, show.new_workspace)


@app.command()
def ingest(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; none: the [[sources]] of the workspace.")] = None,
    format: Annotated[str | None, typer.Option(help="Log format; default: recognised by content.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would land, write nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on taking in what is logged until this is ended.")] = False,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Land logs, make trajectories and groups, and say what the log is worth.

    `records`, `duplicates`, `quarantined`, `skipped` and `formats` count what this call took in; the rest is the lake
    after it.
    """
    from pipelines.ingest import ingest as take_in
    from pipelines.ingest import watch as go_on

    workspace = _open(folder)
    if watch:
        if dry_run:
            raise typer.BadParameter("--watch takes in what it finds; leave --dry-run out")
        for found in go_on(workspace, paths, format=format, stopped=_ended()):
            if as_json:
                print(json.dumps(_finite(found), default=str, allow_nan=False), flush=True)
            elif "problem" in found:
                print(found["problem"], file=sys.stderr, flush=True)
            else:
                show.ingested(found)
        return
    _answer(as_json, take_in(workspace, paths, format=format, dry_run=dry_run), show.ingested)


@app.command()
def formats(folder: Where = Path(), as_json: AsJson = False) -> None:
    """List the log formats and what each can give; they are the same in every workspace."""
    del folder
    from pipelines.landing.registry import describe

    _answer(as_json, describe(), show.formats)


quarantine_app = typer.Typer(help="What could not be read, with file, line, byte offset and reason. Alone: the newest of it.")
app.add_typer(quarantine_app, name="quarantine")


@quarantine_app.callback(invoke_without_command=True)
def quarantine(context: typer.Context, folder: Where = Path(), as_json: AsJson = False) -> None:
    """What could not be read, with file, line, byte offset and reason. Alone: the newest of it."""
    if context.invoked_subcommand is None:
        quarantine_list(folder=folder, as_json=as_json)


@quarantine_app.command("list")
def quarantine_list(
    reason: Annotated[str | None, typer.Option(help="Only what is there for this reason.")] = None,
    num: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 50,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """List what could not be read, the newest first."""
    from pipelines.landing import quarantine as rows

    _answer(as_json, rows.listed(_open(folder), reason=reason, num_rows=num), show.quarantine)


@quarantine_app.command("show")
def quarantine_show(record: str, folder: Where = Path(), as_json: AsJson = False) -> None:
    """One piece whole, with its redacted text."""
    from pipelines.landing import quarantine as rows

    _answer(as_json, rows.show(_open(folder), record), terminal.fields)


@quarantine_app.command("retry")
def quarantine_retry(
    records: Annotated[list[str] | None, typer.Argument(help="record_ids; none: all.")] = None,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Read pieces again with today's parsers; what can be read now lands and is made into trajectories."""
    from pipelines.replay import retry

    _answer(as_json, retry(_open(folder), records or None), show.retried)


@app.command()
def replay(
    format: Annotated[str | None, typer.Option(help="Only bundles of this log format.")] = None,
    first: Annotated[str | None, typer.Option("--from", help="Only bundles with a record on this day or later.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Only bundles with a record on this day or earlier.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Read all bundles again, not only those of another parser.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Derive again; without it nothing is written.")] = False,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Show what today's parsers and redaction rules would make of the stored log; with --apply, derive it again."""
    from pipelines.replay import replay as derive_again

    days = (None if first is None else _day(first), None if last is None else _day(last))
    report = derive_again(_open(folder), format=format, first=days[0], last=days[1], every=every, apply=apply)
    _answer(as_json, show.plain(report), show.replayed)


@app.command()
def lanes(
    night: Annotated[str | None, typer.Option(help="YYYY-MM-DD; default: the last night that ran.")] = None,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Where the log of a night went: counts per lane and reason."""
    from pipelines.batches import lane_counts

    _answer(as_json, lane_counts(_open(folder), None if night is None else _day(night)), show.lanes)


groups_app = typer.Typer(no_args_is_help=True, help="Groups of attempts at one task.")
app.add_typer(groups_app, name="groups")


@groups_app.command("wanted")
def groups_wanted(
    every: Annotated[bool, typer.Option("--all", help="Show all of them; --json always holds all.")] = False,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Tasks that lack siblings or spread, most useful first."""
    from pipelines.groups import wanted_tasks

    _answer(as_json, wanted_tasks(_open(folder)), functools.partial(show.wanted, every=every))


@app.command()
def why(reference: str, folder: Where = Path(), as_json: AsJson = False) -> None:
    """The whole story of one trajectory: where it came from, where it went, and for what reason."""
    from pipelines import story
    from pipelines.lineage import why as told

    _answer(as_json, told(_open(folder), reference), story.story)


@app.command()
def night(
    date: Annotated[str | None, typer.Option(help="YYYY-MM-DD; default: today. All sealed groups that wait are taken.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Train on consumed groups once more; marked.")] = False,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Run the nightly job once: from the log to a decision."""
    from pipelines.nights import run_night

    workspace = _open(folder)
    _answer(as_json, run_night(workspace, _today() if date is None else _day(date), again=again), show.night)


@app.command()
def demo(
    nights: Annotated[int, typer.Option(min=1, help="Nights to run.")] = 3,
    seed: Annotated[int, typer.Option(help="Of tickets, sampling and training.")] = 0,
    engine: Annotated[str, typer.Option(help="Who serves the policy.")] = "embedded",
    folder: Annotated[Path | None, typer.Option("--workspace", "-w", help="Default: .demo in the checkout; made anew.")] = None,
    control: Annotated[
        str | None, typer.Option(help="`shuffled`: advantages shuffled within groups, which must teach nothing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The closed loop on the embedded model: serve, log, learn, evaluate, promote, night after night."""
    from pipelines.demo import run_demo

    if engine != "embedded":
        raise ConfigError(f"engine {engine!r} is not known: this nightshift serves the demo with `embedded`")
    result = run_demo(nights=nights, seed=seed, folder=folder, control=control)
    _answer(as_json, result, show.demo)


@app.command()
def lineage(reference: str, folder: Where = Path(), as_json: AsJson = False) -> None:
    """What a checkpoint, batch, group or trajectory came from; for FILE:LINE, what became of it and what learned from it."""
    from pipelines import story
    from pipelines.lineage import ask

    found = ask(_open(folder), reference)
    if "became" in found and not as_json:
        story.line(found)
        if not found["trajectories"]:
            return
    _answer(as_json, found, show.lineage)


@app.command()
def checkpoints(folder: Where = Path(), as_json: AsJson = False) -> None:
    """Checkpoints with parent, batches, held-out pass rate, decision, and which one is champion."""
    from pipelines.checkpoints import listed

    _answer(as_json, listed(_open(folder)), show.checkpoints)


@app.command()
def promote(version: int, folder: Where = Path(), as_json: AsJson = False) -> None:
    """Make a version champion, through the gate."""
    from pipelines.promotion import promote as through_the_gate

    _answer(as_json, show.plain(through_the_gate(_open(folder), version)), terminal.fields)


@app.command()
def rollback(folder: Where = Path(), as_json: AsJson = False) -> None:
    """Back to the previous champion."""
    from pipelines.promotion import rollback as back

    _answer(as_json, show.plain(back(_open(folder))), terminal.fields)


@app.command()
def doctor(
    digest: Annotated[bool, typer.Option("--digest", help="Hash of each table's canonical rows.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Mend damaged tables first; nothing is deleted.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of the tables, to find flipped ones.")] = False,
    folder: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Check set-up, tables and invariants; exit 1 where something is broken that is not mended."""
    from pipelines import doctor as checks

    workspace = Workspace.open(folder, claim=False)  # a lake that cannot be read is what this command is for
    done = checks.fix(workspace, deep=deep) if fix else []
    if digest:
        _answer(as_json, checks.digest(workspace), terminal.fields)
        return
    findings = checks.check(workspace, deep=deep)
    told = [*({"check": "fixed", "ok": True, "detail": line} for line in done), *map(dataclasses.asdict, findings)]
    _answer(as_json, told, show.findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def sql(question: str, folder: Where = Path(), as_json: AsJson = False) -> None:
    """Ask the lake a read-only question; tables are named <stage>.<table>, and "show tables" lists them."""
    _answer(as_json, _open(folder).queries.answer(question), terminal.rows)


def _day(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"{text!r} is no date; write YYYY-MM-DD") from None


if __name__ == "__main__":
    os.umask(0o077)  # logs hold what users said
    main()
