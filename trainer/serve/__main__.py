"""`python -m trainer.serve`: load the base model, listen, say where in the ready file, and serve until told to end.

Started by a program, it wants OMP_WAIT_POLICY=PASSIVE and GOMP_SPINCOUNT=0 in its environment: torch's threads otherwise
spin while they wait and take the cores from whoever sends the requests.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from pathlib import Path

from trainer import embedded
from trainer.contract import NightshiftError, write_json_atomically


def main(arguments: list[str] | None = None) -> int:
    """Serve; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.serve", description=__doc__)
    parser.add_argument("--base-model", default="embedded", help="`embedded`, or a folder in the transformers layout")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one, see the ready file")
    parser.add_argument("--ready-file", type=Path, help="JSON with url, pid and base model, written when requests are answered")
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="end when standard input closes, as it does when the starter dies"
    )
    asked = parser.parse_args(arguments)

    # what can be wrong with the arguments is said before torch is imported, which takes seconds
    listener = socket.socket(socket.AF_INET6 if ":" in asked.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((asked.host, asked.port))
    except OSError as problem:
        print(f"cannot listen on {asked.host}:{asked.port}: {problem.strerror}", file=sys.stderr)
        return 1
    try:
        embedded.resolve(asked.base_model)
        from trainer.serve.app import Server
        from trainer.serve.batching import Batcher
        from trainer.serve.policy import ServedPolicy

        policy = ServedPolicy(asked.base_model)
    except (NightshiftError, OSError) as problem:
        print(f"cannot serve {asked.base_model}: {problem}", file=sys.stderr)
        return 1
    import uvicorn

    batcher = Batcher(policy)
    batcher.start()
    config = uvicorn.Config(
        Server(policy, batcher).app(), log_level="warning", access_log=False, timeout_graceful_shutdown=2, lifespan="off"
    )
    server = uvicorn.Server(config)
    if asked.end_with_stdin:
        threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
    listener.listen(2048)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    if asked.ready_file:
        ready = {"url": url, "pid": os.getpid(), "base_model": policy.name, "tokenizer_hash": policy.tokenizer_hash}
        write_json_atomically(asked.ready_file, ready)
    print(f"serving {policy.name} at {url}", file=sys.stderr, flush=True)
    server.run(sockets=[listener])
    batcher.close()
    return 0


def _end_with_stdin(server: object) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True  # type: ignore[attr-defined]  # uvicorn's, imported late


if __name__ == "__main__":
    code = main()
    # a batch may still be in the generating thread, which waits for nothing and holds nothing
    sys.stderr.flush()
    os._exit(code)
