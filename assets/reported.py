"""Shows in the Dagster UI what the command line did: materialisations reported from outside a run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import dagster as dg

from assets.home import instance_of


def main() -> None:
    """Read `{asset: report}` as JSON from standard input and report each as a materialisation."""
    parser = argparse.ArgumentParser(prog="python -m assets.reported", description=__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--day", required=True)
    arguments = parser.parse_args()
    reports = json.load(sys.stdin)
    with instance_of(arguments.workspace) as instance:
        for asset, report in reports.items():
            key = dg.AssetKey(asset.split("/"))
            partition = None if asset == "landing/records" else arguments.day
            metadata = {"report": dg.MetadataValue.json(report), "by": dg.MetadataValue.text("nightshift ingest")}
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition, metadata=metadata))


if __name__ == "__main__":
    main()
