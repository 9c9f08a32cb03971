"""Which files to land: paths from the command line, or the configured [[sources]]."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import SourceConfig
from pipelines.errors import SourceError, UnknownFormatError
from pipelines.landing import registry
from pipelines.landing.format import LogFormat
from pipelines.landing.head import Head
from pipelines.workspace import Workspace

EVERY = "**/*"
"""Every file of a folder and of the folders in it."""

RECORDER = "recorder"
"""Format of what this workspace records itself: top-ups, which land without being named in [[sources]]."""


@dataclass(frozen=True)
class SourceFile:
    """A file to land."""

    path: Path
    real: Path
    """With all links followed: its name in the lake."""
    size: int
    """In bytes, when it was found."""
    format: LogFormat | None
    """None: no format recognises it, or it is empty."""
    empty: bool = False
    """It holds nothing but white space."""


def find(workspace: Workspace, paths: Sequence[Path] | None, format: str | None) -> tuple[list[SourceFile], list[SourceError]]:
    """The files behind some paths, or behind [[sources]] where `paths` is None: each once, sorted; and those inside a
    folder that cannot be read.

    `format` None: recognised by content. SourceError where a named path is missing, unreadable or no regular file,
    UnknownFormatError where a file that was named itself is of no known format. Files inside a folder that no format
    recognises are returned without one; hidden files and the workspace's own tables and runs are left out.
    """
    if paths is None:
        wanted = [(workspace.path(source.path), source.glob, source.format) for source in workspace.config.sources]
        if workspace.top_ups.exists():
            wanted.append((workspace.top_ups, EVERY, RECORDER))
    else:
        wanted = [(Path(named), EVERY, format) for named in paths]
    found: dict[Path, SourceFile] = {}
    problems: list[SourceError] = []
    for named, glob, known in wanted:
        if paths is None and not named.exists():
            raise SourceError(f"source {named} does not exist; mend [[sources]] in nightshift.toml, or mount it", path=str(named))
        given = registry.by_name(known) if known is not None else None
        for path, real in _files(workspace, named, glob):
            try:
                file = _source_file(path, real, given)
            except OSError as problem:
                if path == named:
                    raise unreadable(path, problem) from problem
                problems.append(unreadable(path, problem))
                continue
            if given is not None and file.format is given:
                known_by = registry.detect(path)
                if known_by is not None and known_by is not given:
                    other = UnknownFormatError(
                        f"{path} is a log of the format {known_by.name}, not {given.name}; name that one, or none and it is "
                        "recognised",
                        path=str(path),
                    )
                    if path == named:
                        raise other
                    problems.append(other)
                    continue
            if path == named and file.format is None and not file.empty:
                raise UnknownFormatError(
                    f"{path} is of no known format; if you know better, name one with --format: {', '.join(registry.names())}",
                    path=str(path),
                )
            found.setdefault(real, file)
    return [found[path] for path in sorted(found)], problems


def watched(
    workspace: Workspace, paths: Sequence[Path] | None, after: tuple[int, str] | None = None
) -> Iterator[tuple[int, str]]:
    """The files behind some paths, or behind [[sources]] where they are there, by the number of the path; none is opened.

    In an order that stays, so that a look can go on `after` one of them. SourceError where a named path does not exist.
    """
    if paths is None:
        wanted = [(workspace.path(source.path), source.glob) for source in workspace.config.sources]
        wanted = [(named, glob) for named, glob in (*wanted, (workspace.top_ups, EVERY)) if named.exists()]
    else:
        wanted = [(Path(named), EVERY) for named in paths]
    own = {os.path.realpath(folder) for folder in _own_folders(workspace)}
    for number, (named, glob) in enumerate(wanted):
        if after is not None and number < after[0]:
            continue
        begin = after[1] if after is not None and number == after[0] else None
        try:
            if not named.is_dir():
                if not named.exists():
                    raise SourceError(f"{named} does not exist; name a log file or a folder of them", path=str(named))
                if begin is None:
                    yield number, str(named)
            elif glob == EVERY:
                parts = () if begin is None else Path(begin).relative_to(named).parts
                yield from ((number, path) for path in _walked(str(named), own, parts))
            else:
                found = (str(path) for path, _ in _files(workspace, named, glob))
                yield from ((number, path) for path in found if begin is None or Path(path) > Path(begin))
        except OSError as problem:
            raise unreadable(named, problem) from problem


def _walked(folder: str, own: set[str], after: tuple[str, ...] = ()) -> Iterator[str]:
    """Files of a folder and of those in it, sorted, without hidden ones and the workspace's own, behind the one at `after`."""
    if os.path.realpath(folder) in own:
        return
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in entries:
        if entry.name.startswith(".") or (after and entry.name < after[0]):
            continue
        rest = after[1:] if after and entry.name == after[0] else ()
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(entry.path, own, rest)
        elif not (after and entry.name == after[0]):
            yield entry.path


def settings_of(workspace: Workspace, source: str) -> SourceConfig | None:
    """The [[sources]] entry that a record's `source` lies under (the deepest of several); None where there is none."""
    path = workspace.path(source).resolve()
    roots = [(workspace.path(entry.path).resolve(), entry) for entry in workspace.config.sources]
    above = [(len(root.parts), entry) for root, entry in roots if path == root or root in path.parents]
    return max(above, key=lambda pair: pair[0])[1] if above else None


def unreadable(path: Path, problem: OSError) -> SourceError:
    """What to say about a file that cannot be read."""
    return SourceError(
        f"{path} cannot be read ({problem.strerror or problem}); mend that and run the same command again", path=str(path)
    )


def _own_folders(workspace: Workspace) -> list[Path]:
    return [workspace.runs, workspace.batches, *([Path(workspace.lake.root)] if workspace.lake.is_local else [])]


def _files(workspace: Workspace, named: Path, glob: str) -> Iterator[tuple[Path, Path]]:
    """Files, each with its path without links."""
    folders: dict[Path, tuple[Path, bool]] = {}  # to follow links from the root on for every file is most of a tree's cost
    try:
        if named.is_dir():
            own = _own_folders(workspace)
            every = (Path(path) for path in _walked(str(named), {os.path.realpath(folder) for folder in own}))
            for path in every if glob == EVERY else sorted(named.glob(glob)):
                hidden = any(part.startswith(".") for part in path.relative_to(named).parts)
                if hidden or not path.is_file():
                    continue
                if path.is_symlink():
                    real = path.resolve()
                    is_own = any(real.is_relative_to(folder) for folder in own)
                else:
                    if path.parent not in folders:
                        folder = path.parent.resolve()
                        folders[path.parent] = folder, any(folder.is_relative_to(one) for one in own)
                    folder, is_own = folders[path.parent]
                    real = folder / path.name
                if not is_own:
                    yield path, real
            return
        if not named.exists():
            raise SourceError(f"{named} does not exist; name a log file or a folder of them", path=str(named))
        if not named.is_file():
            raise SourceError(f"{named} is neither a file nor a folder", path=str(named))
        yield named, named.resolve()
    except OSError as problem:
        raise unreadable(named, problem) from problem


def _source_file(path: Path, real: Path, given: LogFormat | None) -> SourceFile:
    size = path.stat().st_size
    head = Head(path)
    format = None if head.is_empty else given or registry.recognised(head)
    return SourceFile(path=path, real=real, size=size, format=format, empty=head.is_empty)
