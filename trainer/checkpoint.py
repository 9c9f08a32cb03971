"""Checkpoints on disk: built beside their place, the manifest last, then renamed, so that a folder is whole or absent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.contract import MANIFEST_FILE, CheckpointManifest, CheckpointRefusedError, RunRefusedError, sha256_of
from trainer.run import RunConfig


def finished(run: RunConfig) -> CheckpointManifest | None:
    """The checkpoint of this very run where it is there and whole; None where it has yet to be trained.

    CheckpointRefusedError where the folder holds something else: it is never overwritten.
    """
    folder = run.out_folder
    if not folder.exists():
        return None
    try:
        manifest = CheckpointManifest.read(folder)
    except CheckpointRefusedError as problem:
        raise CheckpointRefusedError(f"{problem}; remove {folder} to train the run again") from None
    if (manifest.run_id, manifest.config_hash) != (run.run_id, run.config_hash):
        raise CheckpointRefusedError(
            f"{folder} holds the checkpoint of run {manifest.run_id} (config {manifest.config_hash}), not of {run.run_id} "
            f"(config {run.config_hash}); give this run another folder",
            checkpoint_id=manifest.checkpoint_id,
        )
    return manifest


@contextmanager
def alone(run: RunConfig) -> Iterator[None]:
    """Hold the run's folder for this process; RunRefusedError where another trainer is at work in it. A kill lets go of it."""
    descriptor = os.open(run.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunRefusedError(f"another trainer is at work in {run.folder}; wait for it, then ask again") from None
        yield
    finally:
        os.close(descriptor)


def checkpoint_id(adapter: Path, run_id: str) -> str:
    """`ckp_` and 128 bits of SHA-256 over the adapter's bytes and the run."""
    digest = hashlib.sha256(adapter.read_bytes())
    digest.update(run_id.encode())
    return "ckp_" + digest.hexdigest()[:32]


def write(
    run: RunConfig, save: Callable[[Path], None], describe: Callable[[Path, dict[str, str]], CheckpointManifest]
) -> CheckpointManifest:
    """Write the checkpoint of a run into its out folder and return its manifest.

    `save` writes the files into the folder that it is given; `describe` makes the manifest from that folder and the
    SHA-256 by file name. What a killed run left half-built is cleared first.
    """
    out = run.out_folder
    partial = out.with_name(out.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    save(partial)
    files = sorted(path for path in partial.iterdir() if path.name != MANIFEST_FILE)
    for path in files:
        _flush(path)
    manifest = describe(partial, {path.name: sha256_of(path) for path in files})
    manifest.write(partial)
    partial.rename(out)
    _flush(out.parent)
    return manifest


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
