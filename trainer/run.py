"""run.toml, read strictly: everything that a training run depends on, and nothing else.

A key that is missing, unknown, of the wrong type or out of range refuses the run by name (RunRefusedError), since a
setting that is silently ignored trains something else than what was asked. Imports neither torch nor pyarrow, so that
a wrong file is refused at once.
"""

from __future__ import annotations

import tomllib
import typing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainer.contract import LANES, RunRefusedError

METRICS_FILE = "metrics.jsonl"
LOSSES = {"grpo": ("grpo",)}
"""Loss -> the lanes whose rows it may train on."""
BACKENDS = ("auto", "peft")
LOSS_MEANS = ("token", "answer")
DECAYS = ("none", "linear")


@dataclass(frozen=True)
class RunConfig:
    """One run of the trainer, as run.toml says it."""

    run_id: str
    night: str
    """Day (UTC, YYYY-MM-DD) of the night that the run belongs to."""
    lane: str
    """Lane of every row; a batch of another lane is refused."""
    loss: str
    """A key of LOSSES."""
    backend: str
    """One of BACKENDS; `auto` takes the best one that works here."""
    batches: tuple[str, ...]
    """Batch folders; relative ones lie beside run.toml."""
    base_model: str
    """`embedded`, or the folder of a model in the transformers layout."""
    base_model_name: str
    """What the rows call it; rows of another base model are refused."""
    parent_id: str
    """checkpoint_id to start from; empty: the base model."""
    parent_folder: str
    """Folder of that checkpoint; empty exactly where parent_id is."""
    out: str
    """Checkpoint folder to write; a relative one lies beside run.toml."""
    learning_rate: float
    learning_rate_decay: str
    """`none`, or `linear`: from learning_rate at the first step towards 0 after the last of all epochs."""
    epochs: int
    """Passes over the batches."""
    groups_per_step: int
    """Groups that one optimiser step learns from."""
    clip_low: float
    """The ratio of new to behaviour probability is clipped to [1 - clip_low, 1 + clip_high]."""
    clip_high: float
    dual_clip: float
    """Bound on the loss of a token with a negative advantage, in units of the advantage (> 1); 0: off."""
    max_clip_fraction: float
    """No further epoch begins after one in which a larger share of tokens was clipped on average; 0: off."""
    loss_mean: str
    """`token`: every sampled token of a step counts the same; `answer`: every row does, its tokens share its weight."""
    max_grad_norm: float
    weight_decay: float
    lora_rank: int
    lora_alpha: int
    seed: int
    shuffle_advantages: bool
    """A control: advantages are permuted within their group, which must teach nothing."""
    config_hash: str
    """Of the settings that the pipelines froze; stands in the checkpoint's manifest."""

    folder: Path
    """Folder of run.toml; not a key of the file."""

    @property
    def out_folder(self) -> Path:
        """Where the checkpoint goes."""
        return self.folder / self.out

    @property
    def metrics_path(self) -> Path:
        """Where the metrics go while the run is at work: one JSON object per optimiser step."""
        return self.folder / METRICS_FILE

    @property
    def batch_folders(self) -> tuple[Path, ...]:
        """Folders of the batches."""
        return tuple(self.folder / batch for batch in self.batches)

    @property
    def parent_path(self) -> Path | None:
        """Folder of the parent checkpoint; None where training starts from the base model."""
        return self.folder / self.parent_folder if self.parent_folder else None

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read and verify run.toml; RunRefusedError names the first key that does not hold."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunRefusedError(f"{path} does not exist; name the run.toml of a run folder") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise RunRefusedError(f"{path} cannot be read: {problem}") from None
        kinds = typing.get_type_hints(cls)
        wanted = [field.name for field in fields(cls) if field.name != "folder"]
        for name in content:
            if name not in wanted:
                raise RunRefusedError(f"{path}: unknown key {name!r}; take it out, or use the nightshift that wrote the file")
        values: dict[str, Any] = {}
        for name in wanted:
            if name not in content:
                raise RunRefusedError(f"{path}: key {name!r} is missing; let `nightshift night` write the file again")
            values[name] = _typed(path, name, content[name], kinds[name])
        run = cls(**values, folder=path.resolve().parent)
        run._verify(path)
        return run

    def _verify(self, path: Path) -> None:
        allowed = {
            "lane": (self.lane in LANES, f"one of {', '.join(LANES)}"),
            "loss": (self.loss in LOSSES, f"one of {', '.join(LOSSES)}"),
            "backend": (self.backend in BACKENDS, f"one of {', '.join(BACKENDS)}"),
            "run_id": (bool(self.run_id), "not empty"),
            "batches": (bool(self.batches), "not empty"),
            "base_model": (bool(self.base_model), "`embedded` or a folder"),
            "base_model_name": (bool(self.base_model_name), "not empty"),
            "parent_folder": (bool(self.parent_folder) == bool(self.parent_id), "given exactly where parent_id is"),
            "out": (bool(self.out), "not empty"),
            "learning_rate": (0 < self.learning_rate < float("inf"), "above 0"),
            "learning_rate_decay": (self.learning_rate_decay in DECAYS, f"one of {', '.join(DECAYS)}"),
            "epochs": (self.epochs >= 1, "at least 1"),
            "groups_per_step": (self.groups_per_step >= 1, "at least 1"),
            "clip_low": (0 < self.clip_low < 1, "between 0 and 1"),
            "clip_high": (0 < self.clip_high < float("inf"), "above 0"),
            "dual_clip": (self.dual_clip == 0 or 1 < self.dual_clip < float("inf"), "0 (off) or above 1"),
            "max_clip_fraction": (0 <= self.max_clip_fraction < 1, "0 (off) or a share below 1"),
            "loss_mean": (self.loss_mean in LOSS_MEANS, f"one of {', '.join(LOSS_MEANS)}"),
            "max_grad_norm": (0 < self.max_grad_norm < float("inf"), "above 0"),
            "weight_decay": (0 <= self.weight_decay < float("inf"), "at least 0"),
            "lora_rank": (self.lora_rank >= 1, "at least 1"),
            "lora_alpha": (self.lora_alpha >= 1, "at least 1"),
            "seed": (self.seed >= 0, "at least 0"),
        }
        for name, (holds, rule) in allowed.items():
            if not holds:
                raise RunRefusedError(f"{path}: {name} = {getattr(self, name)!r} must be {rule}")
        if self.lane not in LOSSES[self.loss]:
            raise RunRefusedError(
                f"{path}: loss {self.loss!r} trains lane {' or '.join(LOSSES[self.loss])}, and this run's lane is {self.lane!r}"
            )


def _typed(path: Path, name: str, value: Any, kind: Any) -> Any:
    if kind == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise RunRefusedError(f"{path}: {name} must be a list of strings, not {value!r}")
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # exact: in Python a bool is an int
        raise RunRefusedError(f"{path}: {name} must be of type {kind.__name__}, not {value!r}")
    return value
