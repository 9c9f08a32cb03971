"""`make dev` in a real browser: the ten groups on the graph, and from a checkpoint's materialisation to the log lines."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from assets.stages import STAGES
from pipelines.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
PATIENCE = 120_000
"""Milliseconds for a page of a webserver that has just started, on two busy cores."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package `chromium`"),
]


@pytest.fixture(scope="module")
def address(night: tuple[Workspace, dict[str, Any]]) -> Iterator[str]:
    workspace, _ = night
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "assets.dev", "--workspace", str(workspace.folder), "--port", str(port)]
    server = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "Serving dagster-webserver" in line:
                break
        else:
            pytest.fail("make dev ended: " + "".join(lines[-20:]))
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # Dagster waits for its own children; what they still do is nobody's concern here
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        opened = browser.new_page(viewport={"width": 1600, "height": 1000})
        opened.set_default_timeout(PATIENCE)
        yield opened
        browser.close()


def test_the_graph_shows_the_ten_groups(page: Any, address: str) -> None:
    page.goto(f"{address}/asset-groups")
    for stage in STAGES:
        page.get_by_text(stage, exact=True).first.wait_for()


def test_from_the_checkpoints_materialisation_to_the_log_lines(
    page: Any, address: str, night: tuple[Workspace, dict[str, Any]]
) -> None:
    workspace, _ = night
    asked = subprocess.run(
        [sys.executable, "-m", "pipelines", "lineage", "toy@1", "--json", "-w", str(workspace.folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {(source["file"], source["line"]) for source in json.loads(asked.stdout)["sources"]}
    page.goto(f"{address}/assets/checkpoints/checkpoint?view=events")
    row = page.locator("tr", has=page.get_by_text("source_lines", exact=True)).first
    row.wait_for()
    found: set[tuple[str, int]] = set()
    for _ in range(60):  # the page draws the table after its row, on a busy machine seconds later
        found = _lines_shown(row)
        if found == expected:
            break
        page.wait_for_timeout(500)
    assert expected and found == expected


def _lines_shown(row: Any) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for cells in row.locator("table tbody tr").all():
        texts = [cell.inner_text().strip() for cell in cells.locator("td").all()]
        if len(texts) == 3:
            file, lines, _ = texts
            for first, last in re.findall(r"(\d+)(?:-(\d+))?", lines):
                found |= {(file, line) for line in range(int(first), int(last or first) + 1)}
    return found


def test_the_webserver_listens_on_loopback_and_has_telemetry_off(address: str) -> None:
    asked = httpx.post(f"{address}/graphql", json={"query": "{ instance { info } }"}, timeout=60).json()
    assert re.search(r"telemetry:\s+enabled: false", asked["data"]["instance"]["info"])
    port = int(address.rsplit(":", 1)[1])
    listening = f":{port:04X}"
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    places = {line[1] for line in lines if line[3] == "0A" and line[1].endswith(listening)}
    assert places == {f"0100007F{listening}"}
