"""The door to MLflow: the only module that imports mlflow, and only when it is used (it costs seconds).

MLflow shows what the lake decided: a model version per checkpoint with its run, its lineage inputs and its files, and the
alias `champion`. Versions are found again by their tag `checkpoint_id`, so that registering twice gives one version.
Adapters are registered as plain files; nothing is ever loaded through MLflow. MLflow's aliases have no compare-and-set,
so the alias is only a projection of the lake's last decision.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipelines.errors import RegistryError
from pipelines.steps import reached

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

ALIAS = "champion"
TAG = "checkpoint_id"
"""Tag of runs and model versions by which they are found again."""

ARTIFACTS = "checkpoint"
"""Artifact folder of a run that holds the adapter and its manifest; the source of its model version."""

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # the defaults keep a command hanging for minutes on a server that is down
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # making a new store is told in two lines that nobody asked for
}
_METRICS_PER_REQUEST = 1000
"""MLflow's own limit."""


@dataclass(frozen=True)
class Input:
    """A table that a checkpoint learned from, as a lineage input of its run; no rows are read."""

    name: str
    path: str
    """URI of the Delta table."""
    version: int
    """Version of the table at registration: a hint, since vacuum ends time travel; the digest stays."""
    digest: str
    """Of the ids of the rows that it learned from; at most 36 characters."""


@dataclass(frozen=True)
class Entry:
    """One checkpoint as it goes into the registry."""

    checkpoint_id: str
    run_name: str
    params: Mapping[str, str]
    metrics: Sequence[tuple[str, float, int]]
    """(name, value, step), of every optimiser step."""
    tags: Mapping[str, str]
    """On the run and on the model version, beside TAG."""
    inputs: Sequence[Input]
    artifacts: Mapping[str, Sequence[Path]]
    """Files by artifact folder; those of ARTIFACTS are what the model version points to."""
    timestamp: int
    """Milliseconds since 1970, for the metrics: when the checkpoint was finished."""


@dataclass(frozen=True)
class Version:
    """A model version that stands for a checkpoint."""

    version: int
    mlflow_run_id: str


class Registry:
    """The registered model of one policy."""

    def __init__(self, uri: str, policy: str, artifacts: Path | None) -> None:
        """`artifacts` is the folder for files where we own the store (sqlite); None: the server decides."""
        self.uri = uri
        self.policy = policy
        self.artifacts = artifacts

    @property
    def is_file(self) -> bool:
        """The store is an sqlite file, which can be looked at without MLflow and without a network."""
        return _sqlite_file(self.uri) is not None

    def find(self, checkpoint_id: str) -> Version | None:
        """The version that stands for a checkpoint; the first, should there be more."""
        with self._asking("looking for a checkpoint") as client:
            return self._find(client, checkpoint_id)

    def register(self, entry: Entry, *, above: int = 0) -> Version:
        """Make run and model version of a checkpoint, or return those that are there.

        `above`: the highest version that the lake knows. A registry that was lost counts from 1 again, and a number that
        names another checkpoint already would mix up the two for ever: such numbers are used up and given back.
        """
        with self._asking(f"registering checkpoint {entry.checkpoint_id}") as client:
            found = self._find(client, entry.checkpoint_id)
            if found is not None and found.version > above:
                return found
            if found is not None:  # left by a process that was killed while it used up such a number
                client.delete_model_version(self.policy, str(found.version))
            run_id = self._run(client, entry)
            reached("registry:after_run")
            self._model(client)
            source = f"runs:/{run_id}/{ARTIFACTS}"
            tags = {**entry.tags, TAG: entry.checkpoint_id}
            version = 0
            while version <= above:
                made = client.create_model_version(self.policy, source=source, run_id=run_id, tags=tags)
                if int(made.version) <= version:
                    raise RegistryError(
                        f"MLflow at {self.uri} gives version {made.version} of {self.policy} again, which the lake holds as another "
                        "checkpoint; restore the registry from a backup"
                    )
                version = int(made.version)
                if version <= above:
                    client.delete_model_version(self.policy, str(version))
            reached("registry:after_version")
            return Version(version, run_id)

    def champion(self) -> int | None:
        """Version that the alias names, None where it names none."""
        held = self._peek()
        if held is not _UNKNOWN:
            return held
        with self._asking("reading the alias") as client:
            return self._alias(client)

    def set_champion(self, version: int) -> None:
        """Let the alias name a version; 0 is the base model, which has none, so that the alias goes."""
        with self._asking(f"setting the alias {ALIAS}") as client:
            held = self._alias(client)
            if version == 0:
                if held is not None:
                    client.delete_registered_model_alias(self.policy, ALIAS)
            elif held != version:
                client.set_registered_model_alias(self.policy, ALIAS, str(version))

    def _find(self, client: MlflowClient, checkpoint_id: str) -> Version | None:
        found = client.search_model_versions(f"name = '{self.policy}' and tag.{TAG} = '{checkpoint_id}'")
        versions = [Version(int(version.version), version.run_id or "") for version in found]
        return min(versions, key=lambda version: version.version, default=None)

    def _run(self, client: MlflowClient, entry: Entry) -> str:
        from mlflow.data.delta_dataset_source import DeltaDatasetSource
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.entities import DatasetInput, Metric, Param

        experiment_id = self._experiment(client)
        for run in client.search_runs([experiment_id], f"tags.{TAG} = '{entry.checkpoint_id}'"):
            if run.info.status == "FINISHED":
                return run.info.run_id
            client.delete_run(run.info.run_id)  # half-made by a process that was killed
        run_id = client.create_run(
            experiment_id, run_name=entry.run_name, tags={**entry.tags, TAG: entry.checkpoint_id}
        ).info.run_id
        metrics = [Metric(name, value, entry.timestamp, step) for name, value, step in entry.metrics]
        client.log_batch(run_id, params=[Param(name, value) for name, value in entry.params.items()])
        for start in range(0, len(metrics), _METRICS_PER_REQUEST):
            client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_REQUEST])
        datasets = [
            MetaDataset(
                DeltaDatasetSource(path=given.path, delta_table_version=given.version), name=given.name, digest=given.digest
            )
            for given in entry.inputs
        ]
        if datasets:
            client.log_inputs(run_id, [DatasetInput(dataset._to_mlflow_entity(), []) for dataset in datasets])
        for folder, files in entry.artifacts.items():
            for file in files:
                client.log_artifact(run_id, str(file), folder or None)
        client.set_terminated(run_id, "FINISHED")
        return run_id

    def _experiment(self, client: MlflowClient) -> str:
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(self.policy)
        if found is not None:
            return found.experiment_id
        location = None if self.artifacts is None else self.artifacts.resolve().as_uri()
        try:
            return client.create_experiment(self.policy, artifact_location=location)
        except MlflowException:
            found = client.get_experiment_by_name(self.policy)
            if found is None:  # it was no racing process that made it
                raise
            return found.experiment_id

    def _model(self, client: MlflowClient) -> None:
        from mlflow.exceptions import MlflowException

        try:
            client.create_registered_model(self.policy)
        except MlflowException as problem:
            if problem.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _alias(self, client: MlflowClient) -> int | None:
        from mlflow.exceptions import MlflowException

        try:
            return int(client.get_model_version_by_alias(self.policy, ALIAS).version)
        except MlflowException as problem:
            if problem.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):  # no such model; no such alias
                return None
            raise

    def _peek(self) -> Any:
        """The alias out of MLflow's own sqlite file, in a millisecond, for the look at the start of every command."""
        path = _sqlite_file(self.uri)
        if path is None:
            return _UNKNOWN
        if not path.exists():
            return None
        with suppress(sqlite3.Error):
            connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)
            try:
                question = "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?"
                row = connection.execute(question, (self.policy, ALIAS)).fetchone()
            finally:
                connection.close()
            return None if row is None else int(row[0])
        return _UNKNOWN  # another MLflow keeps its aliases elsewhere: ask it

    @contextmanager
    def _asking(self, what: str) -> Iterator[MlflowClient]:
        """A client; whatever fails inside becomes a RegistryError in one line."""
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        import requests
        import sqlalchemy.exc
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            yield MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
        except (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as problem:
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            raise RegistryError(
                f"MLflow at {self.uri} failed ({what}): {lines[0][:300]}; nothing is lost, run the same command again when it answers"
            ) from problem


_UNKNOWN = object()


def _sqlite_file(uri: str) -> Path | None:
    prefix = "sqlite:///"
    if not uri.startswith(prefix):
        return None
    return Path(unquote(uri[len(prefix) :].partition("?")[0])).resolve()
