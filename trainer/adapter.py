"""The policy that learns: a frozen base model with a LoRA adapter on all its linear layers, through peft, float32.

Only safetensors are read or written. There is no state of a random generator to keep: dropout is 0, and every draw of a
run (first weights, order of groups) is derived from its seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.batches import BaseModel, Row
from trainer.contract import CheckpointManifest, CheckpointRefusedError, RunRefusedError
from trainer.prefix_tree import PrefixTree, plant
from trainer.run import RunConfig

if TYPE_CHECKING:
    import torch

ADAPTER_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"

AGREEMENT = 1e-3
"""Largest difference in logprob between the packed forward pass and the model's own that needs no second look; rounding
stayed below 1e-4 over all rows of the demo's nights."""
MOST_ROUNDING = 0.02
"""Largest difference that may come from rounding: a tenth of the usual clip, so that rounding alone never clips a token."""


def adapter_config(run: RunConfig, target_modules: Sequence[str]) -> dict[str, Any]:
    """The adapter_config.json that peft and vLLM read; these keys and no others, so that nothing in it can name code."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": run.base_model_name,
        "r": run.lora_rank,
        "lora_alpha": run.lora_alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "target_modules": sorted(target_modules),
        "use_dora": False,
        "use_rslora": False,
    }


@dataclass(frozen=True)
class Parent:
    """A verified checkpoint to start from."""

    folder: Path
    manifest: CheckpointManifest

    @classmethod
    def read(cls, run: RunConfig, model: BaseModel) -> Parent | None:
        """The run's parent, held against run and model; None where the run starts from the base model. Needs no torch."""
        folder = run.parent_path
        if folder is None:
            return None
        manifest = CheckpointManifest.read(folder)
        for name, found, wanted in (
            ("checkpoint_id", manifest.checkpoint_id, run.parent_id),
            ("base_model", manifest.base_model, model.name),
            ("tokenizer_hash", manifest.tokenizer_hash, model.tokenizer_hash),
        ):
            if found != wanted:
                raise CheckpointRefusedError(
                    f"parent {folder}: its {name} is {found!r}, the run needs {wanted!r}; name its own parent"
                )
        for file in (ADAPTER_FILE, CONFIG_FILE):
            if file not in manifest.files:
                raise CheckpointRefusedError(f"parent {folder}: its manifest names no {file}; train from another checkpoint")
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pth", ".pkl", ".pickle"})
        if pickled:
            raise CheckpointRefusedError(
                f"{folder / pickled[0]}: pickled files are refused; only safetensors are read, remove it"
            )
        cls._verify_config(folder, run)
        return cls(folder, manifest)

    @staticmethod
    def _verify_config(folder: Path, run: RunConfig) -> None:
        path = folder / CONFIG_FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            targets = list(found["target_modules"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise CheckpointRefusedError(f"{path} cannot be read ({problem!r}); train from another checkpoint") from None
        wanted = adapter_config(run, targets)
        for name in sorted(found.keys() | wanted.keys()):
            if name not in wanted:
                raise CheckpointRefusedError(f"{path}: unknown key {name!r}; only adapters that this trainer wrote are read")
            if name not in found:
                raise CheckpointRefusedError(f"{path}: key {name!r} is missing; train from another checkpoint")
            if found[name] != wanted[name]:
                raise CheckpointRefusedError(
                    f"{path}: {name} is {found[name]!r} and the run says {wanted[name]!r}; "
                    "set it to the parent's, or start from the base model"
                )


class Policy:
    """Base model and adapter in memory: `model` is peft's, `parameters` the adapter's tensors under the names that it stores."""

    def __init__(self, run: RunConfig, model: BaseModel, parent: Parent | None) -> None:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        from trainer.linear import speed_up

        torch.use_deterministic_algorithms(True)
        # it would also clear every new tensor, against reads that do not happen here: 5% of the time
        deterministic: Any = torch.utils.deterministic
        deterministic.fill_uninitialized_memory = False
        try:
            base = AutoModelForCausalLM.from_pretrained(
                model.folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError) as problem:
            raise RunRefusedError(f"base model {model.folder} cannot be loaded: {str(problem).splitlines()[0]}") from None
        _refuse_windows(base.config, model)
        base.requires_grad_(False)
        speed_up(base)
        torch.manual_seed(run.seed)
        settings = LoraConfig(
            r=run.lora_rank, lora_alpha=run.lora_alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        # eval mode: there is no dropout, and nothing else may differ from the pass that sampled
        self.model: Any = get_peft_model(base, settings).eval()
        self._causal: Any = self.model.get_base_model()
        self.parameters: dict[str, torch.nn.Parameter] = {
            name.replace(".default.", "."): parameter
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }
        # …self_attn.q_proj.lora_A.weight: every layer that got an adapter, by the last part of its name
        self.config = adapter_config(run, sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in self.parameters}))
        if parent is not None:
            self._load(parent)

    def logprobs(self, tree: PrefixTree) -> torch.Tensor:
        """Logprobs of the tree's N sampled tokens (float32 [N], row after row), with their graph.

        The vocabulary is only spanned at the P tokens that predict something, never over prompts.
        """
        import torch

        visible = torch.from_numpy(tree.visible)
        # additive: a boolean mask would be turned into this one anew in every layer
        mask = torch.zeros(visible.shape, dtype=self._causal.dtype).masked_fill_(~visible, -torch.inf)
        hidden = self._causal.get_decoder()(
            input_ids=torch.from_numpy(tree.token_ids)[None],
            attention_mask=mask[None, None],
            position_ids=torch.from_numpy(tree.positions)[None],
            use_cache=False,
        ).last_hidden_state[0]
        logits = self._causal.get_output_embeddings()(hidden[torch.from_numpy(tree.predictors)])
        return torch.log_softmax(logits, dim=-1)[torch.from_numpy(tree.predicted_by), torch.from_numpy(tree.targets)]

    def verify_packing(self, rows: Sequence[Row]) -> float:
        """Hold the packed forward pass against the model's own on two rows; returns the largest difference of a logprob.

        An architecture that scales its logits or carries a state from token to token would otherwise train on wrong numbers.
        Two causes look alike in float32: an architecture that cannot be packed, and rounding, which a model with very large
        activations blows up. In float64 only the first remains. RunRefusedError for the first, and for rounding that comes
        near to what a clip cuts off; it says which.
        """
        chosen = sorted(rows, key=lambda row: (len(row.token_ids), row.token_ids))[:2]
        (tree,) = plant(chosen, sum(len(row.token_ids) for row in chosen))
        difference = self._packing_difference(tree)
        if difference <= AGREEMENT:
            return difference
        self.model.double()
        exact = self._packing_difference(tree)
        self.model.float()  # what came from float32 goes back to it unchanged
        named = ", ".join(sorted({row.trajectory_id for row in chosen}))
        if exact > AGREEMENT:
            raise RunRefusedError(
                f"this base model's logprobs change by {exact:.2g} when rows share a prefix, in float64 too (rows of {named}): "
                "its architecture is not supported; use a plain decoder (Llama, Qwen2/3, SmolLM2, …)"
            )
        if difference > MOST_ROUNDING:
            raise RunRefusedError(
                f"float32 arithmetic moves a logprob by {difference:.2g} here and float64 by {exact:.2g} (rows of {named}): nothing "
                "is wrong with the batch; run again, and if it stays, start from an earlier checkpoint or train on another machine"
            )
        return difference

    def _packing_difference(self, tree: PrefixTree) -> float:
        import torch

        with torch.no_grad():
            packed = self.logprobs(tree).numpy()
            own = np.concatenate([self._own_logprobs(row) for row in tree.rows])
        difference = float(np.abs(packed - own).max())
        return difference if np.isfinite(difference) else np.inf

    def _own_logprobs(self, row: Row) -> np.ndarray:
        import torch

        ids = torch.tensor([row.token_ids])
        logprobs = torch.log_softmax(self.model(input_ids=ids).logits[0], dim=-1)
        return logprobs[torch.from_numpy(row.sampled_at - 1), ids[0, torch.from_numpy(row.sampled_at)]].numpy()

    def _load(self, parent: Parent) -> None:
        import torch

        tensors = read_tensors(parent.folder / ADAPTER_FILE)
        if tensors.keys() != self.parameters.keys():
            odd = sorted(tensors.keys() ^ self.parameters.keys())[0]
            raise CheckpointRefusedError(f"{parent.folder / ADAPTER_FILE}: tensor {odd} is not in both adapter and model")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if tensors[name].shape != parameter.shape:
                    raise CheckpointRefusedError(
                        f"{parent.folder / ADAPTER_FILE}: tensor {name} has another shape than the model's"
                    )
                parameter.copy_(tensors[name])

    def save(self, folder: Path) -> None:
        """Write adapter_model.safetensors and adapter_config.json."""
        write_tensors(folder / ADAPTER_FILE, dict(self.parameters))
        text = json.dumps(self.config, indent=1, sort_keys=True) + "\n"
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


class Optimizer:
    """AdamW over the adapter, with the gradient's norm clipped."""

    def __init__(self, run: RunConfig, policy: Policy, parent: Parent | None) -> None:
        import torch

        self._named = policy.parameters
        self._max_norm = run.max_grad_norm
        self._learning_rate = run.learning_rate
        self._adamw = torch.optim.AdamW(list(self._named.values()), lr=run.learning_rate, weight_decay=run.weight_decay)
        self.continued = parent is not None and OPTIMIZER_FILE in parent.manifest.files and self._continue(parent.folder)
        """The parent's moments were taken over."""

    def step(self, share: float = 1.0) -> float:
        """Apply the gathered gradients at `share` of the learning rate and clear them; returns their norm before clipping.

        A norm that is no number applies nothing.
        """
        import torch

        for group in self._adamw.param_groups:
            group["lr"] = self._learning_rate * share
        norm = float(torch.nn.utils.clip_grad_norm_(list(self._named.values()), self._max_norm))
        if np.isfinite(norm):
            self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        return norm

    def save(self, folder: Path) -> None:
        """Write the moments and the step count as optimizer.safetensors."""
        tensors = {}
        for name, parameter in self._named.items():
            for moment, value in self._adamw.state[parameter].items():
                tensors[f"{moment}.{name}"] = value
        write_tensors(folder / OPTIMIZER_FILE, tensors)

    def _continue(self, folder: Path) -> bool:
        tensors = read_tensors(folder / OPTIMIZER_FILE)
        states = {}
        for name, parameter in self._named.items():
            state = {moment: tensors.get(f"{moment}.{name}") for moment in ("step", "exp_avg", "exp_avg_sq")}
            shapes = [None if value is None else value.shape for value in state.values()]
            if shapes != [(), parameter.shape, parameter.shape]:
                return False
            states[parameter] = state
        self._adamw.state.update(states)
        return True


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file; CheckpointRefusedError where it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as problem:
        raise CheckpointRefusedError(f"{path} cannot be read as safetensors ({problem}); train from another checkpoint") from None


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write tensors as a safetensors file; the same tensors give the same bytes."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def _refuse_windows(config: Any, model: BaseModel) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    if kinds - {"full_attention"} or (window and not kinds):
        raise RunRefusedError(
            f"base model {model.name} has layers that do not see the whole prompt ({', '.join(sorted(kinds)) or 'sliding window'}): "
            "not supported; use a model with full attention"
        )
