"""Stage 7 against a real MLflow on sqlite: one version per checkpoint whatever dies in between, and what the version carries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines import chain, checkpoints, promotion, training
from pipelines.errors import RegistryError, TrainingError
from pipelines.schemas import CHECKPOINTS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.night_rows import NIGHT, RUBRIC, day_after, freeze, train

ROOT = Path(__file__).resolve().parents[2]
CONFIG = '[policy]\nname = "agent"\nbase_model = "model"\n'


def _opened(folder: Path, config: str = CONFIG) -> Workspace:
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    return make_workspace(folder, config)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return _opened(tmp_path / "workspace")


@pytest.fixture(scope="module")
def empty_registry(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """MLflow's sqlite file with its tables, made once: making them costs seconds."""
    workspace = _opened(tmp_path_factory.mktemp("registry") / "workspace")
    assert checkpoints.registry(workspace).find("ckp_none") is None
    return (workspace.folder / "mlflow.db").read_bytes()


@pytest.fixture
def with_registry(workspace: Workspace, empty_registry: bytes) -> Workspace:
    (workspace.folder / "mlflow.db").write_bytes(empty_registry)
    return workspace


def _client(workspace: Workspace):  # mlflow is imported late here too
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=workspace.registry_uri, registry_uri=workspace.registry_uri)


def _killed_at(workspace: Workspace, step: str) -> None:
    program = f"""
from pipelines import checkpoints
from pipelines.workspace import Workspace
checkpoints.register(Workspace.open({str(workspace.folder)!r}), {NIGHT!r})
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "NIGHTSHIFT_KILL_AT": step})
    assert died.returncode == -9


def test_a_version_carries_where_it_came_from(with_registry: Workspace) -> None:
    workspace = with_registry
    freeze(workspace, "bat_1", groups=["grp_1", "grp_2"])
    checkpoint_id = train(workspace)
    registered = checkpoints.register(workspace, NIGHT)
    assert (registered.checkpoint_id, registered.policy_version, registered.reused) == (checkpoint_id, "agent@1", False)
    client = _client(workspace)
    version = client.get_model_version("agent", "1")
    assert version.tags["checkpoint_id"] == checkpoint_id and version.run_id == registered.mlflow_run_id
    run = client.get_run(version.run_id)
    wanted = {"batches": "bat_1", "parent": "base", "rubric_hash": RUBRIC, "lane": "grpo", "night": NIGHT, "marks": ""}
    assert wanted.items() <= run.data.tags.items() and wanted.items() <= version.tags.items()
    assert {"code_version", "config_hash", "adapter_sha256"} <= version.tags.keys()
    assert run.data.params["lora_rank"] == "16" and run.info.status == "FINISHED"
    history = client.get_metric_history(version.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 1.0), (2, 0.5)]
    (given,) = [given.dataset for given in run.inputs.dataset_inputs]  # the one table of the five that exists here
    source = json.loads(given.source)
    assert (given.name, source["path"]) == ("batches/consumed", workspace.lake.uri("batches/consumed"))
    assert source["delta_table_version"] == workspace.lake.version("batches/consumed") and len(given.digest) == 32
    listed = {
        folder: [file.path for file in client.list_artifacts(version.run_id, folder)]
        for folder in ("checkpoint", "run", "lineage")
    }
    assert listed == {
        "checkpoint": ["checkpoint/adapter_config.json", "checkpoint/adapter_model.safetensors", "checkpoint/manifest.json"],
        "run": ["run/metrics.jsonl", "run/run.toml"],
        "lineage": ["lineage/edges.parquet"],
    }
    assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(workspace.folder / "mlartifacts")
    edges = pq.read_table(client.download_artifacts(version.run_id, "lineage/edges.parquet"))
    assert edges.column_names == ["checkpoint_id", "batch_id", "group_id", "trajectory_id", "record_id", "source", "line"]


def test_asking_again_is_the_same_version_and_needs_no_mlflow(with_registry: Workspace) -> None:
    workspace = with_registry
    freeze(workspace, "bat_1")
    train(workspace)
    first = checkpoints.register(workspace, NIGHT)
    (workspace.folder / "mlflow.db").unlink()
    again = checkpoints.register(workspace, NIGHT)
    assert again.reused and (again.version, again.mlflow_run_id) == (first.version, first.mlflow_run_id)
    assert not (workspace.folder / "mlflow.db").exists()
    row = workspace.lake.read(CHECKPOINTS.name).to_pylist()[0]
    assert workspace.path(row["path"]) == chain.policy(workspace, row["checkpoint_id"]).folder
    assert row["marks"] == [] and json.loads(row["metrics"]) == {"loss": 0.75}


@pytest.mark.parametrize("step", ["registry:after_run", "registry:after_version", "checkpoints/checkpoints:after_commit"])
def test_a_kill_anywhere_leaves_one_version_and_one_row(with_registry: Workspace, step: str) -> None:
    workspace = with_registry
    freeze(workspace, "bat_1")
    checkpoint_id = train(workspace)
    _killed_at(workspace, step)
    registered = checkpoints.register(workspace, day_after(NIGHT, 1) if step == "registry:after_version" else NIGHT)
    assert (registered.checkpoint_id, registered.version) == (checkpoint_id, 1)
    client = _client(workspace)
    assert [version.run_id for version in client.search_model_versions("name = 'agent'")] == [registered.mlflow_run_id]
    assert workspace.lake.read(CHECKPOINTS.name, columns=["checkpoint_id", "version"]).to_pylist() == [
        {"checkpoint_id": checkpoint_id, "version": 1}
    ]


def test_versions_follow_each_other_and_the_alias_follows_the_champion(with_registry: Workspace) -> None:
    workspace = with_registry
    for number, night in enumerate((NIGHT, day_after(NIGHT, 1)), start=1):
        freeze(workspace, f"bat_{number}", night=night, groups=[f"grp_{number}"])
        train(workspace, night)
        assert checkpoints.register(workspace, night).version == number
    registry = checkpoints.registry(workspace)
    client = _client(workspace)
    for version in (2, 1):
        registry.set_champion(version)
        assert registry.champion() == version == int(client.get_model_version_by_alias("agent", "champion").version)
    assert promotion.repair_alias_if_behind(workspace) is None  # the lake says base: nothing was ever promoted, nothing to do
    assert promotion.repair_alias(workspace) is None
    assert registry.champion() is None
    promotion.decide(workspace, day_after(NIGHT, 5))  # nothing trained: the champion stays the base model
    client.set_registered_model_alias("agent", "champion", "1")
    assert promotion.repair_alias_if_behind(workspace) is None
    assert registry.champion() is None


def test_a_lost_registry_does_not_give_a_number_a_second_time(with_registry: Workspace, empty_registry: bytes) -> None:
    workspace = with_registry
    for number, night in enumerate((NIGHT, day_after(NIGHT, 1)), start=1):
        freeze(workspace, f"bat_{number}", night=night, groups=[f"grp_{number}"])
        train(workspace, night)
        checkpoints.register(workspace, night)
    (workspace.folder / "mlflow.db").write_bytes(empty_registry)
    later = day_after(NIGHT, 2)
    freeze(workspace, "bat_3", night=later, groups=["grp_3"])
    checkpoint_id = train(workspace, later)
    assert checkpoints.register(workspace, later).version == 3
    held = workspace.lake.read(CHECKPOINTS.name, columns=["version"]).column("version").to_pylist()
    assert sorted(held) == [1, 2, 3]
    (version,) = _client(workspace).search_model_versions("name = 'agent'")
    assert (int(version.version), version.tags["checkpoint_id"]) == (3, checkpoint_id)


def test_mlflow_unreachable_keeps_the_checkpoint_and_the_same_command_works_later(tmp_path: Path, empty_registry: bytes) -> None:
    folder = tmp_path / "workspace"
    workspace = _opened(folder, CONFIG + '[registry]\nuri = "http://127.0.0.1:9"\n')
    freeze(workspace, "bat_1")
    checkpoint_id = train(workspace)
    with pytest.raises(RegistryError, match=r"MLflow at http://127\.0\.0\.1:9 failed \(registering checkpoint ckp_") as caught:
        checkpoints.register(workspace, NIGHT)
    assert "\n" not in str(caught.value)
    assert workspace.lake.read(CHECKPOINTS.name).num_rows == 0
    assert training.plan(workspace, NIGHT).done
    (folder / "mlflow.db").write_bytes(empty_registry)
    assert checkpoints.register(_opened(folder), NIGHT).checkpoint_id == checkpoint_id


def test_marks_of_a_run_on_consumed_groups_and_of_the_control(tmp_path: Path, empty_registry: bytes) -> None:
    workspace = _opened(tmp_path / "workspace", CONFIG + "[training]\nshuffle_advantages = true\n")
    (workspace.folder / "mlflow.db").write_bytes(empty_registry)
    freeze(workspace, "bat_1", again=True)
    checkpoint_id = train(workspace)
    checkpoints.register(workspace, NIGHT)
    assert checkpoints.marks(workspace, checkpoint_id) == ["again", "shuffled"]


def test_a_run_that_has_not_finished_is_said_and_nothing_trained_is_normal(workspace: Workspace) -> None:
    nothing = checkpoints.register(workspace, NIGHT)
    assert nothing.checkpoint_id is None and nothing.why_nothing
    freeze(workspace, "bat_1")
    with pytest.raises(TrainingError, match=r"run run_\w+ has no checkpoint yet; run the training stage"):
        checkpoints.register(workspace, NIGHT)
    assert not (workspace.folder / "mlflow.db").exists()


def test_importing_the_stages_does_not_import_mlflow() -> None:
    program = "import sys; from pipelines import promotion, checkpoints, training; assert 'mlflow' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
