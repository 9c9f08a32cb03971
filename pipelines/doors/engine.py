"""The door to the policy server: who serves the policy, and under which name a policy is asked for.

With [policy] base_url that server is used (vLLM with runtime adapters; checkpoint folders must lie on a disk that it sees).
Otherwise it is the embedded server: the one that `hold` keeps alive for this workspace, else a child process for the time
of the block. A child runs in a process group of its own and ends with its starter, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.chain import Policy
from pipelines.errors import EngineError
from pipelines.workspace import Workspace
from trainer.contract import sha256_of, write_json_atomically

ROOT = Path(__file__).resolve().parents[2]
LIVE_FILE = ".engine.json"
"""Names the server that `hold` keeps alive: {url, pid, base_model, tokenizer_hash}."""
LOG_FILE = ".engine.log"
START_SECONDS = 300.0
"""Longest wait for a child to answer: it may have to read several GB of weights."""
ANSWER_SECONDS = 60.0
STOP_SECONDS = 5.0
_LOG_LINES = 8
_QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Without these, torch's threads spin while they wait and take the cores from the harness."""


@dataclass
class PolicyServer:
    """A server that answers."""

    url: str
    """Base of its API, `http://host:port/v1`."""
    _loaded: dict[str, str | None] = field(default_factory=dict)
    """Served model -> its base model; None for the base model itself."""

    def model_for(self, policy: Policy) -> str:
        """The model name under which a policy is requested; loads its adapter where the server does not hold it yet.

        An adapter is named by its checkpoint_id, which is a hash of its content, so a name never changes what it means.
        """
        if policy.folder is None:
            return self.base_model()
        if policy.checkpoint_id not in self._models() and policy.checkpoint_id not in self._models(anew=True):
            body = {"lora_name": policy.checkpoint_id, "lora_path": str(policy.folder.resolve())}
            try:
                _ask("POST", f"{self.url}/load_lora_adapter", body)
            except EngineError:
                # another process may have loaded it between the look and the load; then all is well
                if policy.checkpoint_id not in self._models(anew=True):
                    raise
            if policy.checkpoint_id not in self._models(anew=True):
                raise EngineError(
                    f"{self.url} took the adapter {policy.checkpoint_id} but does not list it; serve with runtime adapters on "
                    "(vLLM: --enable-lora, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)",
                    checkpoint_id=policy.checkpoint_id,
                )
        return policy.checkpoint_id

    def base_model(self) -> str:
        """Name under which the base model is served."""
        return next(name for name, parent in self._models().items() if parent is None)

    def _models(self, *, anew: bool = False) -> dict[str, str | None]:
        """What is served; other processes load adapters too, so what was heard before may be behind (`anew` asks again)."""
        if anew or not self._loaded:
            self._loaded.clear()
            listed = _ask("GET", f"{self.url}/models")
            self._loaded.update({row["id"]: row.get("parent") for row in listed.get("data", [])})
            if None not in self._loaded.values():
                raise EngineError(f"{self.url}/models lists no base model; is that an OpenAI-compatible server?")
        return self._loaded


@contextlib.contextmanager
def engine(workspace: Workspace) -> Iterator[PolicyServer]:
    """A policy server for the time of the block; EngineError says why there is none, or why it died meanwhile."""
    if workspace.config.policy.base_url:
        yield PolicyServer(workspace.config.policy.base_url.rstrip("/"))
    elif (url := _live(workspace)) is not None:
        yield PolicyServer(url)
    else:
        with _child(workspace) as ready:
            yield PolicyServer(ready["url"])


@contextlib.contextmanager
def hold(workspace: Workspace) -> Iterator[PolicyServer]:
    """Keep one embedded server alive for the block, which every `engine` of this workspace uses, in any process."""
    if workspace.config.policy.base_url or _live(workspace) is not None:
        with engine(workspace) as server:
            yield server
        return
    named = workspace.folder / LIVE_FILE
    with _child(workspace) as ready:
        write_json_atomically(named, ready)
        try:
            yield PolicyServer(ready["url"])
        finally:
            named.unlink(missing_ok=True)


def base_identity(workspace: Workspace) -> tuple[str, str]:
    """Name of the base model and SHA-256 of its tokenizer: what batches and checkpoints are held against."""
    folder = _base_folder(_base_argument(workspace))
    try:
        return folder.name, sha256_of(folder / "tokenizer.json")
    except OSError as problem:
        raise EngineError(
            f"base model {folder}: tokenizer.json cannot be read ({problem.strerror}); name a folder in the transformers layout "
            "in [policy] base_model"
        ) from None


def tokenizer_file(workspace: Workspace) -> Path | None:
    """tokenizer.json of the base model; None where the base model is not at hand."""
    try:
        path = _base_folder(_base_argument(workspace)) / "tokenizer.json"
    except (EngineError, OSError):
        return None
    return path if path.exists() else None


def _base_argument(workspace: Workspace) -> str:
    base_model = workspace.config.policy.base_model
    return base_model if base_model == "embedded" else str(workspace.path(base_model).resolve())


@cache
def _base_folder(base_model: str) -> Path:
    if base_model != "embedded":
        return Path(base_model)
    # prints the folder; converts the model first where that was never done (about 20 s)
    asked = subprocess.run([sys.executable, "-m", "trainer.embedded"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if asked.returncode != 0:
        raise EngineError("the embedded model could not be made ready (see above); run `make setup` and try again")
    return Path(asked.stdout.strip().splitlines()[-1])


def _live(workspace: Workspace) -> str | None:
    """URL of the held server where one answers and serves this workspace's base model."""
    try:
        ready = json.loads((workspace.folder / LIVE_FILE).read_text(encoding="utf-8"))
        url: str = ready["url"]
        _ask("GET", f"{url.removesuffix('/v1')}/health", seconds=10.0)
        listed = _ask("GET", f"{url}/models", seconds=10.0)["data"]
    except (OSError, ValueError, KeyError, EngineError):
        return None  # its holder died: the file is stale
    name, tokenizer_hash = base_identity(workspace)
    serves = any(row.get("base_model") == name and row.get("tokenizer_hash") == tokenizer_hash for row in listed)
    return url if serves else None


@contextlib.contextmanager
def _child(workspace: Workspace) -> Iterator[dict[str, Any]]:
    base_model, log_path = _base_argument(workspace), workspace.folder / LOG_FILE
    with tempfile.TemporaryDirectory(prefix="nightshift-engine-") as scratch, log_path.open("ab") as log:
        ready_file, log_start = Path(scratch) / "ready.json", log.seek(0, os.SEEK_END)
        command = [sys.executable, "-m", "trainer.serve", "--base-model", base_model, "--ready-file", str(ready_file)]
        child = subprocess.Popen(
            [*command, "--end-with-stdin"],
            cwd=ROOT,
            env={**os.environ, **_QUIET_THREADS},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield _wait_ready(child, ready_file, log_path, log_start)
        except EngineError as problem:
            # a broken connection is what the caller saw; why the child died is what helps
            if _ended(child) and "trainer.serve" not in str(problem):
                raise _death(child, log_path, log_start) from problem
            raise
        finally:
            _stop(child)


def _wait_ready(child: subprocess.Popen[bytes], ready_file: Path, log_path: Path, log_start: int) -> dict[str, Any]:
    deadline = time.monotonic() + START_SECONDS
    while not ready_file.exists():
        if child.poll() is not None:
            raise _death(child, log_path, log_start)
        if time.monotonic() > deadline:
            raise EngineError(f"the embedded server (trainer.serve) was not ready within {START_SECONDS:.0f} s; see {log_path}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
    return json.loads(ready_file.read_text(encoding="utf-8"))


def _ended(child: subprocess.Popen[bytes]) -> bool:
    # a killed child closes its sockets a moment before it can be waited for
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)
    return child.poll() is not None


def _death(child: subprocess.Popen[bytes], log_path: Path, log_start: int) -> EngineError:
    with log_path.open("rb") as log:
        log.seek(log_start)
        lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    code = child.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    said = " | ".join(lines[-_LOG_LINES:]) or "it wrote nothing"
    return EngineError(f"the embedded server (trainer.serve) {how}: {said}; whole log in {log_path}", pid=child.pid)


def _stop(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_SECONDS)
    # the group: whatever it started ends with it
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _ask(method: str, url: str, body: dict[str, Any] | None = None, *, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    import httpx

    try:
        reply = httpx.request(method, url, json=body, timeout=seconds, trust_env=False)
    except httpx.HTTPError as problem:
        raise EngineError(f"the policy server at {url} does not answer ({str(problem) or type(problem).__name__})") from problem
    if reply.status_code != 200:
        raise EngineError(f"{method} {url} answered {reply.status_code}: {_message_of(reply.text)}")
    return reply.json() if reply.headers.get("content-type", "").startswith("application/json") else {}


def _message_of(text: str) -> str:
    try:
        body = json.loads(text)
        return str(body["error"]["message"]) if "error" in body else str(body.get("message", text))[:400]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:400]
