"""Memory does not grow with a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.doors.lake import Lake
from pipelines.schemas import RECORDS
from tests.landing.lines import call, item
from tests.landing.test_exactly_once import prepare, run

Written = Callable[[int], Iterator[bytes]]
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


def write(path: Path, written: Written, num_megabytes: int) -> int:
    """Number of records."""
    num_records = 0
    with path.open("wb") as stream:
        for part in written(num_megabytes << 20):
            stream.write(part)
            num_records += len(part) > 10
    return num_records


def landed(folder: Path, paths: list[Path], **environment: str) -> list[dict[str, int]]:
    prepare(folder)
    landing = run(folder, paths, 20_000, **environment)
    output, errors = landing.communicate()
    assert landing.returncode == 0, errors
    return [json.loads(said) for said in output.splitlines()]


def test_a_file_of_many_chunks_takes_no_more_memory_than_one_of_two(tmp_path: Path) -> None:
    """One program, so that what any landing needs is there when the large files come."""
    first, second, small, large = tmp_path / "lines", tmp_path / "items", 4, 32
    counts = [write(tmp_path / f"small-{path.name}", written, small) for path, written in ((first, lines), (second, items))]
    counts += [write(path, written, large) for path, written in ((first, lines), (second, items))]
    paths = [tmp_path / "small-lines", tmp_path / "small-items", first, second]
    said = landed(tmp_path / "workspace", paths, NIGHTSHIFT_TEST_CHUNK_BYTES=str(2 << 20), NIGHTSHIFT_LANDING__WORKERS="1")
    assert [one["records"] + one["seen"] for one in said] == counts
    assert Lake(str(tmp_path / "workspace" / "lake")).num_rows(RECORDS.name) == sum(one["records"] for one in said)
    before, with_lines, with_items = (one["megabytes"] for one in said[1:])
    # a file that is held, even once and undecoded, costs its own size
    assert with_lines - before < large and with_items - with_lines < large, said


def test_several_processes_hold_little_each(tmp_path: Path) -> None:
    num_records = write(tmp_path / "log", lines, 48)
    (said,) = landed(tmp_path / "workspace", [tmp_path / "log"], NIGHTSHIFT_LANDING__WORKERS="3")
    assert said["records"] == num_records
    assert said["megabytes"] < 650 and 20 < said["megabytes_of_others"] < MOST_OF_OTHERS, said


@pytest.mark.drill
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("written", "workers"), [(lines, 1), (lines, 3), (items, 1)])
def test_five_gigabytes_land_in_little_memory(tmp_path: Path, written: Written, workers: int) -> None:
    num_records = write(tmp_path / "log", written, 5000)
    (said,) = landed(tmp_path / "workspace", [tmp_path / "log"], NIGHTSHIFT_LANDING__WORKERS=str(workers))
    (tmp_path / "log").unlink()
    assert said["records"] == num_records == Lake(str(tmp_path / "workspace" / "lake")).num_rows(RECORDS.name)
    assert said["megabytes"] < 1000 and said["megabytes_of_others"] < MOST_OF_OTHERS, said
