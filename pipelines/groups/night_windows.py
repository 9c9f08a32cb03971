"""Which windows a night looks at: those that are not over yet, and those where something changed since a night looked last.

What stages 3 to 5 decide of an attempt rests on its window alone: siblings, groups, rewards, lanes. What rests on more is asked of
whole tables, in few and narrow columns: splits, near-copies, and the answers that trained (I14). So a window that is over, in
which no attempt, group or reward changed and nothing waits, would end as it did, and is not read.

What a night saw last is kept as sequences in the log of batches/lanes, committed with its rows: the versions of the tables
before they were read, under a hash of the settings that decide. Other settings, a rollback, or a version that cannot be read
any more: everything is looked at once more. `groups.look_at = "all"` does so every night.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass, field

from pipelines.doors.queries import Kept, Only
from pipelines.ids import plain_hash
from pipelines.schemas import CONSUMED, DECISIONS, GROUPS, LANES, REWARDS, TRAJECTORIES, VERDICTS
from pipelines.workspace import Workspace

SORTING = 1
"""Of the rules by which attempts are sorted: with another number, everything is looked at once more."""

WATCHED = (TRAJECTORIES.name, GROUPS.name, REWARDS.name)
"""Tables whose changes open a window again."""

WAITING = ("cluster_full", "no_reward", "split_pending")
"""Lane reasons that another night may change although nothing in the window did."""

_SEALED = "sealed"
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class NightWindows:
    """Windows by their first days; None: all that there are."""

    windows: frozenset[str] | None
    window_days: int
    seen: dict[str, int] = field(default_factory=dict)
    """Versions of the watched tables before anything of them was read, what the next night starts from."""

    @property
    def days(self) -> frozenset[str] | None:
        """All days in the windows."""
        if self.windows is None:
            return None
        first_days = [datetime.date.fromisoformat(window) for window in self.windows]
        return frozenset(
            (day + datetime.timedelta(days=number)).isoformat() for day in first_days for number in range(self.window_days)
        )

    @property
    def only(self) -> Only:
        """What of the lake lies in the windows, for `Queries.run`."""
        days = self.days
        if self.windows is None or days is None:
            return {}
        by_window = {table.name: Kept("window", self.windows) for table in (GROUPS, VERDICTS, REWARDS, CONSUMED)}
        return {TRAJECTORIES.name: Kept("day", days), **by_window}


def window_of(day: str, window_days: int) -> str:
    """First day of the tumbling window that a day (YYYY-MM-DD) lies in, aligned to 1970-01-01."""
    number = (datetime.date.fromisoformat(day) - _EPOCH).days
    return (_EPOCH + datetime.timedelta(days=number - number % window_days)).isoformat()


def night_windows(workspace: Workspace, night: str) -> NightWindows:
    """The windows that a night (YYYY-MM-DD) looks at, whichever of its stages asks, also where it has been sorted before."""
    lake, width = workspace.lake, workspace.config.groups.window_days
    seen = {name: version for name in WATCHED if (version := lake.version(name)) is not None}
    everything = NightWindows(None, width, seen)
    if workspace.config.groups.look_at == "all":
        return everything
    last = _last_before(workspace, night)
    if last is None:
        return everything
    last_night, versions = last
    first_open = window_of(last_night, width)
    days: set[str] = set()
    for name in seen:
        column = "window" if name == REWARDS.name else "day"
        changed = lake.changed_since(name, versions[name], column) if name in versions else None
        if changed is None:
            return everything
        days |= changed
    days |= {day for day in lake.partitions(TRAJECTORIES.name) if day >= first_open}
    asked = {"night": night, "last_night": last_night, "reasons": list(WAITING)}
    waiting = workspace.queries.run("groups/waiting_windows", asked).column("window").to_pylist()
    if None in waiting:  # of an older nightshift, which kept no windows
        return everything
    return NightWindows(frozenset(window_of(day, width) for day in {*days, *waiting}), width, seen)


def recently_asked(workspace: Workspace) -> NightWindows:
    """The windows in which production asked something in the last `groups.wanted_days`, counted back from its newest attempt."""
    width, num_days = workspace.config.groups.window_days, workspace.config.groups.wanted_days
    newest = workspace.queries.run("groups/newest_asked").column("day")[0].as_py()
    if num_days is None or newest is None:
        return NightWindows(None, width)
    first = (datetime.date.fromisoformat(newest) - datetime.timedelta(days=num_days)).isoformat()
    days = workspace.lake.partitions(TRAJECTORIES.name)
    return NightWindows(frozenset(window_of(day, width) for day in days if day >= first), width)


def sorted_at(workspace: Workspace, night: str, looked_at: NightWindows) -> dict[str, int]:
    """Sequences that say how far the night saw, to be committed with its lanes.

    None where some group was sealed in windows of another length: it may lie in two of today's, and is only seen whole where
    everything is looked at.
    """
    if looked_at.windows is None:
        labels = workspace.queries.run("groups/window_labels").column("window").to_pylist()
        if any(label != window_of(label, looked_at.window_days) for label in labels):
            return {}
    # attempts that came while the night was at work were sorted, but nobody tried to seal them
    sealed = _seen(workspace.lake.sequences(GROUPS.name), f"{_SEALED}/{night}/")
    seen = {name: min(version, sealed.get(name, version)) for name, version in looked_at.seen.items()}
    return _sequences(f"{_prefix(workspace)}/{night}/", seen)


def sealed_at(night: str, looked_at: NightWindows) -> dict[str, int]:
    """Sequences that say which attempts a night saw when it sealed, to be committed with its groups."""
    return _sequences(f"{_SEALED}/{night}/", {k: v for k, v in looked_at.seen.items() if k == TRAJECTORIES.name})


def _sequences(prefix: str, seen: dict[str, int]) -> dict[str, int]:
    return {f"{prefix}{name}": version + 1 for name, version in seen.items()}  # sequences begin with 1


def _seen(sequences: dict[str, int], prefix: str) -> dict[str, int]:
    return {app_id.removeprefix(prefix): number - 1 for app_id, number in sequences.items() if app_id.startswith(prefix)}


def _last_before(workspace: Workspace, night: str) -> tuple[str, dict[str, int]] | None:
    """The last night before `night` that sorted everything it had to look at, and the versions that it saw."""
    prefix = f"{_prefix(workspace)}/"
    found: dict[str, dict[str, int]] = {}
    for app_id, sequence in workspace.lake.sequences(LANES.name).items():
        if app_id.startswith(prefix):
            of_night, _, table = app_id.removeprefix(prefix).partition("/")
            found.setdefault(of_night, {})[table] = sequence - 1
    last = max((of_night for of_night in found if of_night < night), default=None)
    return None if last is None else (last, found[last])


def _prefix(workspace: Workspace) -> str:
    """App id of what was sorted under the settings that decide where an attempt goes."""
    config = workspace.config
    decisions = workspace.lake.read(DECISIONS.name, ["decision"]).column("decision").to_pylist()
    settings = {
        "sorting": SORTING,
        **{
            name: getattr(config, name).model_dump(mode="json") for name in ("groups", "rewards", "judge", "evaluation", "policy")
        },
        "training": [list(config.training.lanes), config.training.start],
        "harness": config.harness.name,
        "rubric": workspace.rubric()[1],
        "code": [_code(workspace, verifier.entry) for verifier in config.rewards.verifiers],
        "rollbacks": decisions.count("rollback"),  # versions may be on the line again that were off it
    }
    return f"sorted/{plain_hash(settings)[:16]}"


def _code(workspace: Workspace, entry: str | None) -> str | None:
    """Of a verifier's file; None where there is none, which the stage that loads verifiers complains about."""
    if entry is None:
        return None
    try:
        return hashlib.sha256(workspace.path(entry.partition(":")[0]).read_bytes()).hexdigest()
    except OSError:
        return None
