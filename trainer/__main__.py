"""`python -m trainer --config run.toml`: train one run and write its checkpoint, manifest last.

Reads: the batches and the parent that run.toml names. Writes: metrics.jsonl as it goes, then the checkpoint folder.
Exit codes: 0 done (or found finished), 3 refused, 4 diverged, 1 anything else that can be mended; one line on standard
error says what to do. Asking again after a kill starts over; asking again after the end returns the same checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

from trainer import checkpoint
from trainer.contract import EXIT_OK, CheckpointManifest, NightshiftError
from trainer.pipes import Report, reporting
from trainer.run import RunConfig


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description="Train one run and write its checkpoint.")
    parser.add_argument("--config", type=Path, required=True, metavar="run.toml", help="the run; see trainer/run.py for its keys")
    options = parser.parse_args(arguments)
    try:
        run = RunConfig.read(options.config)
        with checkpoint.alone(run), reporting() as report:
            found = checkpoint.finished(run)
            manifest = found or _train(run, report)
            report.checkpoint(manifest, reused=found is not None)
    except NightshiftError as problem:
        print(f"trainer: {problem}", file=sys.stderr)
        return problem.exit_code
    except OSError as problem:  # full disk, no permission, …
        print(f"trainer: {problem}; mend that and run the same command again, nothing is lost", file=sys.stderr)
        return 1
    return EXIT_OK


def _train(run: RunConfig, report: Report) -> CheckpointManifest:
    from trainer import batches
    from trainer.adapter import ADAPTER_FILE, AGREEMENT, Optimizer, Parent, Policy

    model = batches.BaseModel.read(run)
    batch_ids, rows = batches.read(run, model)
    parent = Parent.read(run, model)
    if run.shuffle_advantages:
        rows = batches.shuffled_advantages(rows, run.seed)
        report.line("advantages are shuffled within their groups: a control, not for production")
    report.line(f"{len(rows)} rows of {len({row.group_id for row in rows})} groups; {_backend(run)}")

    from transformers.utils import logging

    from trainer.step import train  # from here on torch is loaded: everything that can be refused without it was

    # standard error holds one line, the one that says what to do: no progress bar of 2 s, no advice to library authors
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    logging.disable_progress_bar()
    policy = Policy(run, model, parent)
    difference = policy.verify_packing(rows)
    if difference > AGREEMENT:
        report.line(f"rounding moves logprobs by up to {difference:.2g} on this machine; float64 shows that nothing else does")
    optimizer = Optimizer(run, policy, parent)
    if parent is not None:
        moments = "taken over" if optimizer.continued else "new"
        report.line(f"starting from {parent.manifest.checkpoint_id}, its optimiser state {moments}")
    trained = train(run, rows, policy, optimizer, report.step)

    def save(folder: Path) -> None:
        policy.save(folder)
        optimizer.save(folder)

    def describe(folder: Path, files: dict[str, str]) -> CheckpointManifest:
        return CheckpointManifest(
            checkpoint_id=checkpoint.checkpoint_id(folder / ADAPTER_FILE, run.run_id),
            run_id=run.run_id,
            parent=run.parent_id or None,
            batches=sorted(batch_ids),
            lane=run.lane,
            loss=run.loss,
            backend="peft",
            base_model=model.name,
            tokenizer_hash=model.tokenizer_hash,
            seed=run.seed,
            num_steps=trained.num_steps,
            num_trained_tokens=trained.num_tokens,
            metrics={**trained.metrics, "packing_difference": difference},
            config_hash=run.config_hash,
            files=files,
            versions={name: version(name) for name in ("torch", "transformers", "peft")},
        )

    return checkpoint.write(run, save, describe)


def _backend(run: RunConfig) -> str:
    reason = "as asked" if run.backend == "peft" else "auto: it is the only backend of this version, and runs on any CPU"
    return f"backend peft ({reason})"


if __name__ == "__main__":
    sys.exit(main())
