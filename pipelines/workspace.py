"""A workspace: the folder that a team owns, opened. Everything that a stage needs hangs on it.

nightshift.toml   settings              rubrics/          rubrics, one Markdown file each
lake/             Delta tables          runs/<run_id>/    trainer runs and their checkpoints
.keys/            identity, redaction   mlflow.db         registry, unless another is configured
top_up/           logs of top-ups, one a night
"""

from __future__ import annotations

import datetime
import os
import secrets
import subprocess
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pyarrow as pa

from pipelines.config import Config
from pipelines.doors.lake import Lake, Snapshot
from pipelines.doors.queries import Queries
from pipelines.errors import ConfigError, IdentityError
from pipelines.ids import Identity, plain_hash
from pipelines.schemas import LAKE_IDENTITY

KEYS = ".keys"
IDENTITY_VARIABLE = "NIGHTSHIFT_IDENTITY_KEY"
REDACTION_VARIABLE = "NIGHTSHIFT_REDACTION_KEY"


@dataclass(frozen=True)
class Workspace:
    """An opened workspace; build it with `Workspace.open`."""

    folder: Path
    config: Config
    identity: Identity
    redaction_key: bytes

    @classmethod
    def open(cls, folder: Path | str, *, claim: bool = True) -> Workspace:
        """Open a workspace; ConfigError where its settings or keys do not hold, IdentityError where the lake is another's.

        `claim` False leaves the lake alone, which may be damaged so that nothing in it can be read: for `nightshift doctor`.
        """
        folder = Path(folder).resolve()
        config = Config.read(folder)
        workspace = cls(
            folder=folder,
            config=config,
            identity=Identity(_key(folder, "identity", IDENTITY_VARIABLE)),
            redaction_key=_key(folder, "redaction", REDACTION_VARIABLE),
        )
        if claim:
            workspace.claim_lake()
        return workspace

    @cached_property
    def lake(self) -> Lake:
        """The tables."""
        root = self.config.lake.root
        return Lake(root if "://" in root else str(self.folder / root), durable=self.config.lake.durable)

    @cached_property
    def queries(self) -> Queries:
        """The SQL engine over the tables."""
        return Queries(self.lake)

    @property
    def runs(self) -> Path:
        """Folder of trainer runs."""
        return self.folder / "runs"

    @property
    def batches(self) -> Path:
        """Folder of frozen batches, `batches/<batch_id>/`."""
        return self.folder / "batches"

    @property
    def top_ups(self) -> Path:
        """Folder of the logs of top-up rollouts, `top_up/<night>.jsonl`; landed like what [[sources]] name."""
        return self.folder / "top_up"

    @property
    def registry_uri(self) -> str:
        """Tracking and registry URI of MLflow."""
        return self.config.registry.uri or f"sqlite:///{self.folder / 'mlflow.db'}"

    def path(self, relative: str) -> Path:
        """A path of the configuration: relative ones lie in the workspace."""
        return self.folder / relative

    def shown(self, path: Path) -> str:
        """A path as stored and printed: relative where it lies in the workspace, else absolute."""
        return self.shown_real(path.resolve())

    def shown_real(self, real: Path) -> str:
        """The same of a path whose links are followed already."""
        return str(real.relative_to(self.folder)) if real.is_relative_to(self.folder) else str(real)

    def rubric(self, name: str | None = None) -> tuple[str, str]:
        """Text and hash of a rubric; None: the one in force."""
        path = self.folder / "rubrics" / f"{name or self.config.judge.rubric}.md"
        try:
            text = path.read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise ConfigError(
                f"rubric {path} cannot be read ({problem.strerror}); name one of rubrics/*.md in [judge] rubric"
            ) from None
        return text, plain_hash(text.encode())

    def claim_lake(self) -> None:
        """Make sure that the lake's ids are made with this identity key; a new lake is this key's from now on."""
        fingerprint = self.identity.fingerprint

        def compute(snapshot: Snapshot) -> pa.Table | None:
            held = snapshot.read(columns=["fingerprint"]).column("fingerprint").to_pylist()
            if held and held != [fingerprint]:
                raise IdentityError(
                    f"the lake at {self.lake.root} was made with another identity key (its fingerprint is {held[0]}, this "
                    f"key's is {fingerprint}); put the right key into {self.folder / KEYS / 'identity'} or {IDENTITY_VARIABLE}"
                )
            if held:
                return None
            now = datetime.datetime.now(datetime.UTC)
            return pa.table({"fingerprint": [fingerprint], "made_at": pa.array([now], pa.timestamp("us", tz="UTC"))})

        self.lake.append_computed(LAKE_IDENTITY.name, compute)


def make_keys(folder: Path) -> None:
    """Make the two keys of a new workspace, 0600, and keep those that are there."""
    keys = folder / KEYS
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("identity", "redaction"):
        try:
            descriptor = os.open(keys / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_hex(32) + "\n")


def _key(folder: Path, name: str, variable: str) -> bytes:
    path = folder / KEYS / name
    text = os.environ.get(variable)
    if text is None:
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                f"the {name} key {path} cannot be read; bring it back from your backup, or set {variable}. "
                "A new key would not recognise what this lake holds."
            ) from None
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        raise ConfigError(f"the {name} key ({path} or {variable}) is no hexadecimal text") from None
    if len(key) < 16:
        raise ConfigError(f"the {name} key ({path} or {variable}) is shorter than 16 bytes")
    return key


@cache
def code_version() -> str:
    """The commit of this checkout, with `+` where files differ from it; `unknown` outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=10, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")
