"""Memory does not grow with a file: measured on files that are larger than what landing may use."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.doors.lake import Lake
from pipelines.schemas import RECORDS
from tests.landing.lines import call, item
from tests.landing.test_exactly_once import prepare, run

MOST_OF_OTHERS = 300
"""Megabytes of each other process."""

WORDS = [f"{number * 7919 % 100_003:x}" for number in range(2000)]


def text(draw: random.Random, num_words: int) -> str:
    return " ".join(draw.choices(WORDS, k=num_words))


def lines(num_bytes: int) -> Iterator[bytes]:
    draw, number = random.Random(0), 0
    while num_bytes > 0:
        messages = [{"role": "user", "content": text(draw, 700)}, {"role": "assistant", "content": text(draw, 700)}]
        one = json.dumps(call(number, request={"messages": messages})).encode()
        yield one + b"\n"
        number, num_bytes = number + 1, num_bytes - len(one)


def items(num_bytes: int) -> Iterator[bytes]:
    draw, number = random.Random(0), 0
    yield b"["
    while num_bytes > 0:
        one = json.dumps(item(number, info={"text": text(draw, 1500)}), indent=1).encode()
        yield one if number == 0 else b",\n" + one
        number, num_bytes = number + 1, num_bytes - len(one)
    yield b"]\n"


@pytest.mark.parametrize(
    ("written", "num_megabytes", "most", "workers"),
    [
        pytest.param(lines, 100, 650, 1, id="lines"),
        pytest.param(lines, 100, 650, 3, id="lines by several processes"),
        pytest.param(items, 100, 650, 1, id="items"),
        pytest.param(lines, 5000, 1000, 1, id="5 GB of lines", marks=[pytest.mark.drill, pytest.mark.timeout(7200)]),
        pytest.param(lines, 5000, 1000, 3, id="5 GB by several", marks=[pytest.mark.drill, pytest.mark.timeout(7200)]),
        pytest.param(items, 5000, 1000, 1, id="5 GB of items", marks=[pytest.mark.drill, pytest.mark.timeout(7200)]),
    ],
)
def test_a_large_file_lands_in_little_memory(
    tmp_path: Path, written: object, num_megabytes: int, most: int, workers: int
) -> None:
    folder, path, num_records = tmp_path / "workspace", tmp_path / "log", 0
    prepare(folder)
    assert callable(written)
    with path.open("wb") as stream:
        for part in written(num_megabytes << 20):
            stream.write(part)
            num_records += len(part) > 10
    landing = run(folder, [path], 20_000, NIGHTSHIFT_LANDING__WORKERS=str(workers))
    output, errors = landing.communicate()
    assert landing.returncode == 0, errors
    landed = json.loads(output.splitlines()[-1])
    path.unlink()
    assert landed["records"] == num_records == Lake(str(folder / "lake")).num_rows(RECORDS.name)
    assert landed["megabytes"] < most, landed
    assert landed["megabytes_of_others"] < MOST_OF_OTHERS, landed
