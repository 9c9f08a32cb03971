"""The base model and its LoRA adapters in one process: loading, switching, rendering of prompts.

An adapter is switched on by adding its product to the base weights (one pass over them, about 0.2 s at 135M parameters),
which makes each token as cheap as the base model's; the untouched base weights are kept beside it, so that switching back
and forth leaves no rounding behind. Only safetensors are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import PreTrainedModel

from trainer import embedded
from trainer.contract import MANIFEST_FILE, CheckpointManifest, CheckpointRefusedError, NightshiftError
from trainer.linear import speed_up
from trainer.serve.kv import ATTENTION, KeyValues, register_attention

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

MAX_KEPT_PREFIX_TOKENS = 4096
"""Tokens of shared prompt beginnings whose keys and values are kept, over all adapters (46 KB a token at 135M parameters)."""
MIN_PREFIX_TOKENS = 16
"""Shorter beginnings are computed again: a forward pass of their own costs more than it saves."""


class AdapterRefusedError(NightshiftError):
    """An adapter that cannot be loaded as it stands."""


@dataclass(frozen=True)
class Adapter:
    """One loaded adapter; it never changes under its name."""

    name: str
    folder: Path
    scaling: float
    factors: dict[str, tuple[torch.Tensor, torch.Tensor]]
    """Module name -> (A float32 [rank, in], B float32 [out, rank])."""


@dataclass
class Prefixes:
    """Keys and values of the prompt beginnings that one adapter saw several times."""

    adapter: Adapter | None
    """None: the base model. A name may come to mean another adapter after it was unloaded; what is kept then is void."""
    recent: list[tuple[int, ...]] = field(default_factory=list)
    """Token ids of the last prompts."""
    kept: OrderedDict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=OrderedDict)
    """Token ids -> keys and values per layer, the longest unused first."""


class ServedPolicy:
    """Base model, tokenizer and adapters. `use` and `forward` belong to the one thread that generates."""

    def __init__(self, base_model: str) -> None:
        register_attention()
        self.folder = embedded.resolve(base_model)
        self.name = embedded.NAME if base_model == "embedded" else self.folder.resolve().name
        self.tokenizer_hash = embedded.tokenizer_hash(self.folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            self.folder, dtype=torch.float32, attn_implementation=ATTENTION, use_safetensors=True, local_files_only=True
        ).eval()
        speed_up(self.model.requires_grad_(False))
        config = self.model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
            raise NightshiftError(
                f"{self.folder}: the embedded server reads models with full attention only, not {', '.join(sorted(kinds))}; "
                "serve this one with vLLM and name it in [policy] base_url"
            )
        self.num_layers: int = config.num_hidden_layers
        self.max_context: int = config.max_position_embeddings
        ends = self.model.generation_config.eos_token_id if self.model.generation_config else None  # type: ignore[union-attr]
        self.end_tokens: frozenset[int] = frozenset(
            token for token in [self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])] if token is not None
        )
        self.adapters: dict[str, Adapter] = {}
        self.prefixes: dict[str | None, Prefixes] = {}
        self._lock = threading.Lock()
        self._active: Adapter | None = None
        self._base_weights: dict[str, torch.Tensor] = {}

    def load(self, name: str, folder: Path) -> None:
        """Load an adapter from a folder as peft saves it; AdapterRefusedError says why it cannot be."""
        adapter = self._read(name, folder)
        with self._lock:
            if name == self.name or name in self.adapters:
                raise AdapterRefusedError(f"the adapter {name} is loaded already; unload it first, or give this one another name")
            self.adapters[name] = adapter

    def unload(self, name: str) -> bool:
        """Forget an adapter; False where there is none of that name."""
        with self._lock:
            return self.adapters.pop(name, None) is not None

    def use(self, adapter: Adapter | None) -> Prefixes:
        """Switch the weights to an adapter (None: base model); returns the kept beginnings that hold under it."""
        name = adapter.name if adapter else None
        for gone in self.prefixes.keys() - self.adapters.keys() - {None, name}:
            del self.prefixes[gone]
        if adapter is not self._active:
            self._merge(adapter)
            self._active = adapter
        held = self.prefixes.get(name)
        if held is None or held.adapter is not adapter:
            held = self.prefixes[name] = Prefixes(adapter)
        return held

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: KeyValues, num_kept: int
    ) -> torch.Tensor:
        """Logits float32 [rows, num_kept, vocabulary] of the last columns; `cache` grows by the columns of `token_ids`."""
        return self.model(
            input_ids=token_ids,
            position_ids=positions,
            attention_mask=mask,
            cache=cache,
            use_cache=True,
            logits_to_keep=num_kept,
        ).logits.float()

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> list[int]:
        """Token ids of a prompt in the model's chat template, the assistant's header included; tools as far as it knows them."""
        text = self.tokenizer.apply_chat_template(
            list(messages), tools=list(tools) if tools else None, add_generation_prompt=True, tokenize=False
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Decoded text, without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def keep_prefix(
        self, prefixes: Prefixes, token_ids: tuple[int, ...], layers: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        """Keep the keys and values of a beginning, and let the longest unused ones go where there are too many."""
        prefixes.kept[token_ids] = layers
        total = sum(len(kept) for each in self.prefixes.values() for kept in each.kept)
        for each in [*(other for other in self.prefixes.values() if other is not prefixes), prefixes]:
            while total > MAX_KEPT_PREFIX_TOKENS and each.kept:
                total -= len(each.kept.popitem(last=False)[0])

    def _merge(self, adapter: Adapter | None) -> None:
        factors = adapter.factors if adapter else {}
        with torch.no_grad():
            for module in self._base_weights.keys() - factors.keys():
                self._weight(module).copy_(self._base_weights[module])
            for module, (down, up) in factors.items():
                weight = self._weight(module)
                if module not in self._base_weights:
                    self._base_weights[module] = weight.clone()
                scaling = adapter.scaling if adapter else 0.0
                torch.addmm(self._base_weights[module], up, down, alpha=scaling, out=weight)

    def _weight(self, module: str) -> torch.Tensor:
        weight = self.model.get_submodule(module).weight.data
        assert isinstance(weight, torch.Tensor)
        return weight

    def _read(self, name: str, folder: Path) -> Adapter:
        from peft import LoraConfig, PeftConfig

        if not (folder / ADAPTER_CONFIG).exists() or not (folder / ADAPTER_FILE).exists():
            raise AdapterRefusedError(f"{folder} holds no {ADAPTER_CONFIG} with {ADAPTER_FILE}: name a checkpoint folder")
        if (folder / MANIFEST_FILE).exists():
            try:
                manifest = CheckpointManifest.read(folder)
            except CheckpointRefusedError as problem:
                raise AdapterRefusedError(str(problem)) from None
            if manifest.tokenizer_hash != self.tokenizer_hash or manifest.base_model != self.name:
                raise AdapterRefusedError(f"{folder} was trained on {manifest.base_model}, and {self.name} is served here")
        config = PeftConfig.from_pretrained(str(folder))
        if (
            not isinstance(config, LoraConfig)
            or config.use_dora
            or config.bias != "none"
            or config.modules_to_save
            or config.rank_pattern
            or config.alpha_pattern
            or config.fan_in_fan_out
        ):
            raise AdapterRefusedError(
                f"{folder}: only plain LoRA is served here (no DoRA, biases, saved modules or patterns per module)"
            )
        try:
            tensors = load_file(str(folder / ADAPTER_FILE))
        except (SafetensorError, OSError) as problem:
            raise AdapterRefusedError(f"{folder / ADAPTER_FILE} cannot be read: {problem}") from None
        halves: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            module, _, half = key.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
            halves.setdefault(module, {})[half] = tensor.float()
        factors = {}
        for module, found in halves.items():
            try:
                shape = tuple(self._weight(module).shape)
                down, up = found.pop("lora_A"), found.pop("lora_B")
            except (AttributeError, KeyError):
                raise AdapterRefusedError(
                    f"{folder / ADAPTER_FILE}: {module} is no LoRA pair of a module of {self.name}"
                ) from None
            if found or (up.shape[0], down.shape[1]) != shape or up.shape[1] != down.shape[0]:
                raise AdapterRefusedError(f"{folder / ADAPTER_FILE}: {module} does not fit {self.name}, whose weight is {shape}")
            factors[module] = (down, up)
        rank = config.r
        return Adapter(name, folder, config.lora_alpha / (rank**0.5 if config.use_rslora else rank), factors)
