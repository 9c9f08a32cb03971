"""A judge that is a local HTTP server: OpenAI-compatible, answering what a test tells it to."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any]], tuple[int, str]]
"""Request body -> (HTTP status, text of the reply)."""


@dataclass
class JudgeDouble:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


def shown_ids(body: dict[str, Any]) -> list[str]:
    return re.findall(r'<attempt id="(\w+)">', body["messages"][1]["content"])


def score_by(score: Callable[[str], float]) -> Reply:
    """Scores every attempt by its text."""

    def reply(body: dict[str, Any]) -> tuple[int, str]:
        blocks = re.findall(r'<attempt id="(\w+)">\n(.*?)\n</attempt>', body["messages"][1]["content"], re.S)
        return 200, json.dumps({"scores": {opaque: {"explanation": "so", "score": score(text)} for opaque, text in blocks}})

    return reply


@contextmanager
def judge_double(reply: Reply) -> Iterator[JudgeDouble]:
    double = JudgeDouble("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            double.requests.append(body)
            status, text = reply(body)
            content = json.dumps(
                {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [
                        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}},
                    ],
                    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
                }
                if status == 200
                else {"error": {"message": text, "type": "refused"}}
            ).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    double.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
