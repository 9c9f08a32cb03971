"""Shared fixtures: an opened workspace on tmp_path, with a fixed identity key so that ids in a test never change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# set before a library reads them, for this process and what tests start: the threads of several workers must not fight over
# the same cores, and a thread that waits must not spin
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")
os.environ.setdefault("POLARS_MAX_THREADS", os.environ["OMP_NUM_THREADS"])
os.environ.setdefault("RAYON_NUM_THREADS", os.environ["OMP_NUM_THREADS"])
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from pipelines.workspace import KEYS, Workspace

settings.register_profile("house", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("house")

SHARED_LOGS = Path(__file__).resolve().parents[2] / "shared" / "logs"


SHARING = {"assets": "night", "harness": "model", "serve": "model", "trainer": "model"}
"""Folders whose tests run in one process: a night that was run, a server with its model, the import of torch are made once."""


class ByFolder(LoadScopeScheduling):
    """Tests of folders that share something first, each such group in one process; every other test wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARING.get(Path(nodeid.split("::", 1)[0]).parent.name, nodeid)


# pytest-xdist 3.8.0 has groups of its own (`xdist_group`), which pytest 9.2 ignores without a word (pytest-xdist#1386)
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)


def make_workspace(folder: Path, config: str = "") -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nightshift.toml").write_text(config, encoding="utf-8")
    (folder / KEYS).mkdir(exist_ok=True)
    for name, digit in (("identity", "11"), ("redaction", "22")):
        (folder / KEYS / name).write_text(digit * 32 + "\n")
    (folder / "rubrics").mkdir(exist_ok=True)
    (folder / "rubrics" / "default.md").write_text("Reaching the goal wins.\n", encoding="utf-8")
    return Workspace.open(folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path / "workspace")


@pytest.fixture
def shared_logs() -> Path:
    if not SHARED_LOGS.exists():
        pytest.skip("the folder of real logs (shared/logs beside the checkout) is absent")
    return SHARED_LOGS


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.toy_model import make_toy_model

    return make_toy_model(tmp_path_factory.mktemp("toy") / "model")
