"""A policy server on loopback that answers by rule, with exact tokens and usage: what top-up talks to in tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class PolicyDouble:
    """OpenAI-compatible; serves the base model `toy` and whatever adapter is loaded."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        """Bodies of the completions."""
        self.adapters: list[str] = []
        self.answer: Callable[[dict[str, Any]], str] = lambda body: f"answer {body['seed'] % 7}"
        self.num_tokens = (6, 2)
        """Of prompt and answer, as the usage says."""
        self.seconds = 0.0
        """That an answer takes."""
        self.dies_after: int | None = None
        """Completions after which every connection is broken."""
        self._lock = threading.Lock()


def _handler(double: PolicyDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({"data": [{"id": "toy"}, *({"id": name, "parent": "toy"} for name in double.adapters)]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/load_lora_adapter"):
                double.adapters.append(body["lora_name"])
                self._reply({})
                return
            with double._lock:
                if double.dies_after is not None and len(double.asked) >= double.dies_after:
                    self.close_connection = True
                    return
                double.asked.append(body)
            time.sleep(double.seconds)  # how long this policy takes to answer, for budgets of time
            num_prompt, num_answer = double.num_tokens
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": double.answer(body)},
                "finish_reason": "stop",
                "token_ids": list(range(num_answer)),
                "logprobs": {"content": [{"logprob": -0.5}] * num_answer},
            }
            usage = {"prompt_tokens": num_prompt, "completion_tokens": num_answer}
            self._reply({"choices": [choice], "prompt_token_ids": list(range(num_prompt)), "usage": usage})

        def _reply(self, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # a night's rollouts come all at once


@contextmanager
def policy_double() -> Iterator[PolicyDouble]:
    """A served double for the time of the block."""
    double = PolicyDouble()
    server = _Server(("127.0.0.1", 0), _handler(double))
    double.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
