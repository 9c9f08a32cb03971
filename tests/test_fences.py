"""What a machine can hold of the house rules: where packages resolve, file lengths, names, stage order, the map, settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("assets", "pipelines", "trainer")
HARD_LIMIT = 600
REFUSED = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "handler", "data", "info", "process", "do"}
SYNONYMS = {"episode", "sample", "trace", "session"}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def test_the_generic_packages_resolve_inside_the_repository_from_another_folder(tmp_path: Path) -> None:
    program = "import json, assets, pipelines, trainer; print(json.dumps([m.__file__ for m in (assets, pipelines, trainer)]))"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    for file, package in zip(json.loads(found.stdout), PACKAGES, strict=True):
        assert Path(file) == ROOT / package / "__init__.py"


def test_set_up_puts_the_command_and_this_checkout_beside_python() -> None:
    program = (ROOT / "requirements" / "install.py").read_text()
    assert "nightshift.pth" in program
    command = Path(sys.executable).with_name("nightshift")
    if not command.exists():
        pytest.skip("this Python is not the one that `make setup` makes")
    listed = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "ingest" in listed.stdout


def test_no_file_is_longer_than_the_limit() -> None:
    long = {str(path.relative_to(ROOT)): n for path in tracked("*.py") if (n := len(path.read_text().splitlines())) > HARD_LIMIT}
    assert long == {}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    for path in tracked("*.py", "*.sql"):
        parts = [part for name in path.relative_to(ROOT).with_suffix("").parts for part in name.lower().split("_")]
        assert not REFUSED & set(parts), path


def test_no_function_or_class_has_a_refused_name() -> None:
    from pipelines.landing.registry import names

    for path in tracked("assets/*.py", "pipelines/*.py", "trainer/*.py"):
        # a log format keeps its vendor's word in its own files, which begin with its name
        own = path.parent.name == "landing" and path.stem.startswith(tuple(names()))
        refused = REFUSED if own else REFUSED | SYNONYMS
        for name in re.findall(r"^\s*(?:def|class)\s+(\w+)", path.read_text(), re.MULTILINE):
            words = set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))
            assert not refused & words, f"{path}: {name}"


def test_code_lies_at_most_two_folders_under_the_root() -> None:
    for path in tracked("assets/*.py", "pipelines/*.py", "trainer/*.py", "examples/*.py", "bench/*.py"):
        assert len(path.relative_to(ROOT).parts) <= 3, path


def stage_modules() -> list[str]:
    from assets.stages import STAGES

    return list(STAGES)


def test_the_order_of_stages_is_the_same_in_code_contract_and_map() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "stage order")
    assert list(reversed(layers)) == stage_modules()
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    numbered = re.findall(r"^\| (\d+) \| (\w+) \|", architecture, re.MULTILINE)
    assert [stage for _, stage in numbered] == stage_modules()
    assert [int(number) for number, _ in numbered] == list(range(1, 11))


def test_each_stage_module_says_what_it_reads_and_writes_and_what_comes_next() -> None:
    for stage in stage_modules():
        candidates = [ROOT / "pipelines" / f"{stage}.py", ROOT / "pipelines" / stage / "__init__.py"]
        candidates += sorted((ROOT / "pipelines" / stage).glob("*.py"))
        texts = [path.read_text().splitlines()[0] for path in candidates if path.exists() and path.read_text()]
        assert any(re.match(r'"""Reads: .*Writes: .*Next: ', line) for line in texts), stage


def test_the_map_in_architecture_is_the_tree() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = re.search(r"```tree\n(.*?)```", architecture, re.DOTALL)
    assert drawn is not None
    lines = [line for line in drawn.group(1).splitlines() if line.strip()]
    named = {line.split()[0].rstrip("/") for line in lines}
    assert len(named) == len(lines), "the map names something twice"
    assert [line for line in lines if len(line) > 140 or len(line.split()) < 2] == [], "each in one line that says what it is"
    modules = {
        str(path.relative_to(ROOT))
        for path in tracked("assets/*.py", "pipelines/*.py", "trainer/*.py")
        if path.name != "__init__.py" and len(path.relative_to(ROOT).parts) == 2
    }
    folders = {str(path.parent.relative_to(ROOT)) for path in tracked("pipelines/*/*.py", "trainer/*/*.py")}
    folders = {folder for folder in folders if folder.count("/") == 1}
    assert {name for name in named if name.startswith(PACKAGES)} == modules | folders | set(PACKAGES)
    for name in named:
        assert (ROOT / name).exists(), f"ARCHITECTURE.md names {name}, which is not there"


def test_settings_of_dagster_yaml_reach_the_live_instance(tmp_path: Path) -> None:
    from assets.home import instance_of

    with instance_of(tmp_path) as instance:
        assert instance.telemetry_enabled is False
        limits = instance.get_concurrency_config().run_queue_config
        assert limits is not None
        assert limits.tag_concurrency_limits == [{"key": "nightshift/night", "limit": 1}]


def test_pin_files_name_no_index() -> None:
    for path in tracked("requirements/*"):
        if path.suffix in {".txt", ".in"}:
            assert not re.search(r"https?://|--index-url|--find-links|--extra-index", path.read_text()), path
