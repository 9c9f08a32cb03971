"""Secrets are planted in a log; after a night, no byte of the workspace but the log and the keys holds one (I12)."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from assets.metadata import facts
from pipelines.reports import Landed
from pipelines.schemas import RECORDS, TRAJECTORIES
from pipelines.workspace import KEYS
from tests.assets.conftest import FailedOnce
from tests.assets.planted import PLANTED


def test_no_byte_of_the_workspace_holds_a_planted_secret(failed_once: FailedOnce) -> None:
    """Neither after a night that failed nor after the one that then worked."""
    workspace = failed_once.workspace
    landed = failed_once.landed
    assert landed["quarantined"] == 3 and sum(landed["redactions"].values()) >= 15 * 4
    shown = facts(Landed(**landed))["redactions"].value  # counts per rule in the asset's metadata
    assert isinstance(shown, str) and "| openai_key | 4 |" in shown
    assert workspace.lake.read(TRAJECTORIES.name, columns=["harness"]).column("harness").to_pylist().count("toy_desk") >= 4
    texts = [
        (Path("what the command said"), json.dumps(failed_once.ingested).encode()),
        (Path("what the failed night said"), str(failed_once.problem).encode()),
        (Path("what the night said"), json.dumps(failed_once.outcome, default=str).encode()),
    ]
    seen = set()
    for path, content in [*texts, *_contents(workspace.folder)]:
        seen.add(path.suffix)
        found = [name for name, secret in PLANTED.items() for form in _forms(secret) if form in content]
        assert not found, f"{path}: {found}"
    assert {".parquet", ".db", ".json"} <= seen  # the lake, its log, MLflow and Dagster were looked at
    assert (workspace.folder / ".dagster").exists() and (workspace.folder / "mlflow.db").exists()
    raws = workspace.lake.read(RECORDS.name, columns=["raw"]).column("raw").to_pylist()
    assert sum("[redacted:" in raw for raw in raws) == 5


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    secret = PLANTED["question"]
    (tmp_path / "a.gz").write_bytes(gzip.compress(secret.encode()))
    with sqlite3.connect(tmp_path / "b.db") as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (?)", (secret,))
    import pyarrow as pa

    pq.write_table(pa.table({"x": [[secret]]}), tmp_path / "c.parquet", compression="zstd")
    (tmp_path / "d.txt").write_text(f"x {secret} y")
    (tmp_path / f"{secret}.e").write_text("")
    hit = {path.suffix for path, content in _contents(tmp_path) if any(form in content for form in _forms(secret))}
    assert hit == {".gz", ".db", ".parquet", ".txt", ".e"}


def _forms(secret: str) -> set[bytes]:
    """A secret as UTF-8 and UTF-16, and its beginning in base64."""
    whole = secret.encode()
    return {whole, secret.encode("utf-16-le"), base64.b64encode(whole)[: len(whole) // 3 * 4]}


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Name and content of every file, packed ones unpacked too; not of the keys, and not of the logs themselves."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or inside.parts[0] in (KEYS, "logs"):
            continue
        content = path.read_bytes()
        yield path, str(inside).encode() + b"\n" + content
        if path.suffix == ".parquet":
            yield path, json.dumps(pq.ParquetFile(path).read().to_pylist(), default=str, ensure_ascii=False).encode()
        elif path.suffix == ".gz":
            yield path, gzip.decompress(content)
        elif content.startswith(b"SQLite format 3\0"):
            with sqlite3.connect(path) as database:  # text that spills over its page is in pieces in the file
                yield path, "\n".join(database.iterdump()).encode()
