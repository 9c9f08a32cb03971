from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import listening, make_adapter, make_sharp_model


@pytest.fixture(scope="session")
def sharp_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sharp_model(tmp_path_factory.mktemp("sharp") / "model")


@pytest.fixture(scope="session")
def adapter(sharp_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(sharp_model, tmp_path_factory.mktemp("adapter") / "one")


@pytest.fixture(scope="session")
def other_adapter(sharp_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(sharp_model, tmp_path_factory.mktemp("adapter") / "two", seed=2)


@pytest.fixture(scope="module")
def served(sharp_model: Path) -> Iterator[tuple[str, Any]]:
    with listening(sharp_model) as pair:
        yield pair
