"""The demo's own folder: made anew, also after it was cut off; nobody else's folder is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import demo
from pipelines.errors import ConfigError


def test_a_demo_that_was_cut_off_can_be_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    first = demo.fresh_workspace(folder, seed=3, control=None)
    (folder / "nightshift.toml").unlink()  # as if it had been ended before the last file
    (folder / "leftover").touch()
    again = demo.fresh_workspace(folder, seed=3, control=None)
    assert not (folder / "leftover").exists()
    assert again.identity.fingerprint == first.identity.fingerprint, "a seed's nights have the same ids on every run"
    assert again.config.training.seed == 3 and again.config.training.shuffle_advantages is False


def test_the_shuffled_control_says_so_in_its_settings(tmp_path: Path) -> None:
    workspace = demo.fresh_workspace(tmp_path / "demo", seed=0, control="shuffled")
    assert workspace.config.training.shuffle_advantages is True and workspace.config.training.start == "latest"


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("precious")
    with pytest.raises(ConfigError, match="no demo"):
        demo.fresh_workspace(tmp_path, seed=0, control=None)
    assert (tmp_path / "theirs").read_text() == "precious"


def test_an_unknown_control_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shuffled"):
        demo.run_demo(nights=1, seed=0, folder=tmp_path / "demo", control="nonsense")
