"""Models, adapters and real servers on loopback for tests that talk to one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def make_sharp_model(folder: Path) -> Path:
    """The toy model with larger weights: its next token depends on what it reads, so a wrong position or mask shows."""
    import torch
    from transformers import AutoModelForCausalLM

    from tests.toy_model import make_toy_model

    make_toy_model(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    model.save_pretrained(folder)
    return folder


def make_adapter(base: Path, folder: Path, seed: int = 1) -> Path:
    """A LoRA adapter whose B is not zero, as peft saves it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    model.save_pretrained(folder)
    return folder


@contextlib.contextmanager
def listening(base: Path) -> Iterator[tuple[str, Any]]:
    """URL and Server of a real server on loopback, in a thread of this process."""
    import uvicorn

    from trainer.serve.app import Server
    from trainer.serve.batching import Batcher
    from trainer.serve.policy import ServedPolicy

    batcher = Batcher(ServedPolicy(str(base)))
    batcher.start()
    served = Server(batcher.policy, batcher)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(served.app(), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", served
    finally:
        server.should_exit = True
        thread.join(10)
        batcher.close()
        batcher.join(10)
