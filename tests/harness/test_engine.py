from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.chain import BASE, Policy
from pipelines.doors.engine import LIVE_FILE, base_identity, engine, hold
from pipelines.errors import EngineError
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.serving import make_adapter
from trainer.embedded import tokenizer_hash

BASE_POLICY = Policy(BASE, 0, "p@0", None, None)


def workspace_on(folder: Path, **policy: str) -> Workspace:
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in policy.items())
    return make_workspace(folder, f"[policy]\n{settings}")


def test_a_held_server_serves_base_and_adapters_to_every_engine_and_ends_with_the_block(toy_model: Path, tmp_path: Path) -> None:
    workspace = workspace_on(tmp_path / "w", base_model=str(toy_model))
    adapter = make_adapter(toy_model, tmp_path / "adapter")
    tuned = Policy("ckp_1", 1, "p@1", adapter, None)
    with hold(workspace) as held:
        live = json.loads((workspace.folder / LIVE_FILE).read_text())
        assert live["url"] == held.url and live["base_model"] == toy_model.name
        assert held.model_for(BASE_POLICY) == toy_model.name  # looks at what is served before the adapter is there
        with engine(workspace) as server:
            assert server.url == held.url
            assert server.model_for(BASE_POLICY) == toy_model.name
            assert server.model_for(tuned) == "ckp_1"
        with engine(workspace) as server, hold(workspace) as second:  # another handle finds the adapter loaded
            assert second.url == server.url == held.url
            assert server.model_for(tuned) == "ckp_1"
            body = {"model": "ckp_1", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
            assert httpx.post(f"{server.url}/chat/completions", json=body, timeout=60).status_code == 200
            with pytest.raises(EngineError, match="name a checkpoint folder"):
                server.model_for(Policy("ckp_2", 2, "p@2", tmp_path, None))
        assert (workspace.folder / LIVE_FILE).exists()
        assert held.model_for(tuned) == "ckp_1"  # loaded through another handle meanwhile
    assert not (workspace.folder / LIVE_FILE).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(live["pid"], 0)


def test_a_child_that_is_killed_says_so_and_a_stale_live_file_is_passed_over(toy_model: Path, tmp_path: Path) -> None:
    workspace = workspace_on(tmp_path / "w", base_model=str(toy_model))
    with pytest.raises(EngineError, match=r"killed by SIGKILL: .*serving model at"), hold(workspace) as server:
        ready = json.loads((workspace.folder / LIVE_FILE).read_text())
        os.kill(ready["pid"], signal.SIGKILL)
        with contextlib.suppress(httpx.HTTPError):  # until the sockets are closed
            while True:
                httpx.get(f"{server.url}/models")
        server.model_for(BASE_POLICY)
    (workspace.folder / LIVE_FILE).write_text(json.dumps(ready))
    (workspace.folder / "nightshift.toml").write_text('[policy]\nbase_model = "absent"\n')
    with (
        pytest.raises(EngineError, match=r"exit code 1: .*absent holds no config.json"),
        engine(Workspace.open(workspace.folder)),
    ):
        pass


def test_a_server_ends_with_its_starter_however_that_ends(toy_model: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "trainer.serve", "--base-model", str(toy_model), "--ready-file", str(ready)]
    child = subprocess.Popen([*command, "--end-with-stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None and child.stderr is not None
    for line in child.stderr:
        if line.startswith(b"serving"):
            break
    url = json.loads(ready.read_text())["url"]
    assert httpx.get(f"{url}/models").json()["data"][0]["base_model"] == toy_model.name
    taken = subprocess.run([*command, "--port", url.rsplit(":", 1)[1].removesuffix("/v1")], capture_output=True, text=True)
    assert taken.returncode == 1 and "cannot listen on" in taken.stderr
    child.stdin.close()  # what the operating system does when the starter dies
    assert child.wait(60) == 0
    child.stderr.close()


def test_a_configured_server_is_used_as_it_is(tmp_path: Path, served: tuple[str, Any], toy_model: Path) -> None:
    workspace = workspace_on(tmp_path / "w", base_url=served[0] + "/", base_model=str(toy_model))
    adapter = make_adapter(toy_model, tmp_path / "adapter")
    with engine(workspace) as server, hold(workspace) as held:
        assert server.url == held.url == served[0]
        assert server.model_for(BASE_POLICY) == toy_model.name
        assert server.model_for(Policy("ckp_9", 1, "p@1", adapter, None)) == "ckp_9"
        assert "ckp_9" in served[1].policy.adapters
    assert not (workspace.folder / LIVE_FILE).exists()


def test_the_base_models_identity_needs_no_server(toy_model: Path, tmp_path: Path) -> None:
    workspace = workspace_on(tmp_path / "w", base_model=str(toy_model))
    assert base_identity(workspace) == (toy_model.name, tokenizer_hash(toy_model))
    with pytest.raises(EngineError, match=r"tokenizer\.json cannot be read"):
        base_identity(workspace_on(tmp_path / "v", base_model="absent"))
