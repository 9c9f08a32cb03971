"""Makes the order desk's tickets: short complaints that hold the order number and one other 5-digit number.

Train, held-out and audit tickets come from templates of their own, and no number appears in two of the three sets: the
5-digit numbers are dealt out by a hash. What is learned from the train tickets must carry over to count.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

Split = Literal["train", "held_out", "audit"]

EXAMPLE_NUMBER = "48213"
"""Stands in the prompt's example turn, so no ticket uses it."""

# {order}: the number that is asked for; {other}: the one that is not
TEMPLATES: dict[Split, tuple[str, ...]] = {
    "train": (
        "My order {order} never arrived. My customer number is {other}.",
        "Customer {other} here, order {order} came broken.",
        "I was charged {other} cents too much on order {order}.",
        "Order {order} has the wrong size, the article is {other}.",
        "I live in {other} and order {order} went to my neighbour.",
        "Please cancel order {order}. You can call me at {other}.",
        "The driver scanned box {other}, but order {order} is not here.",
        "For order {order} I got a letter with the reference {other}.",
        "Invoice {other} does not fit my order {order}.",
        "Where is order {order}? The tracking page only shows {other}.",
        "Voucher {other} was not taken off order {order}.",
        "I sent order {order} back with return slip {other}.",
        "Ticket {other} was closed, yet order {order} is still missing.",
        "Can order {order} be sent to zip code {other}?",
        "Your colleague with badge {other} promised me order {order} today.",
        "Half of order {order} is missing, only item {other} was in the box.",
        "Why was order {order} sent through depot {other}?",
        "I rang {other} and nobody knew about order {order}.",
        "Order {order} does not take my gift card {other}.",
        "Nobody has touched order {order} since complaint {other}.",
        "Parcel {other} was opened, and order {order} is incomplete.",
        "The label says {other} but inside was order {order}.",
        "Order {order}, please. My old one was under account {other}.",
        "Is {other} the right pin to collect order {order}?",
        "I need the bill for order {order}, tax number {other}.",
        "Shelf {other} in your store still holds my order {order}.",
        "Points for order {order} were not added to card {other}.",
        "Do I have to pay {other} again for order {order}?",
        "Truck {other} left an hour ago without order {order}.",
        "You mixed up order {order} and quote {other}.",
        "After chat {other} I was told that order {order} is lost.",
        "Send order {order} to flat {other} instead.",
        "About order {order} the seller {other} does not answer.",
        "Order {order} smells odd, batch {other}.",
        "My son used {other} as the password for order {order}.",
        "Credit note {other} should be for order {order}.",
        "I am number {other} in the queue and only ask for order {order}.",
        "Please hold order {order} until permit {other} is there.",
        "Model {other} is not what I put into order {order}.",
        "Order {order} does not exist, says robot {other}.",
        "Could you add warranty {other} to order {order}?",
        "Order {order} was refused, but terminal {other} charged me.",
        "The photo of order {order} shows house {other}, not mine.",
        "With booking {other} came a voucher for order {order}.",
        "Order {order} weighs less than the {other} grams you wrote.",
        "Request {other} was answered, order {order} was not.",
        "I want to know who signed for order {order} at gate {other}.",
        "Subscription {other} ended, does that stop order {order}?",
    ),
    "held_out": (
        "Account {other}: when will order {order} ship?",
        "Order {order} is damaged, see photo {other}.",
        "I paid order {order} twice, with transfer {other}.",
        "My membership is {other} and I want to change order {order}.",
        "The shop in {other} told me to ask you about order {order}.",
        "Order {order} was meant for a birthday, the gift card is {other}.",
        "Case {other} is about order {order}, please hurry.",
        "I still wait for order {order} since you answered mail {other}.",
        "Locker {other} was empty, so order {order} must be somewhere else.",
        "Is order {order} the same as delivery {other}?",
    ),
    "audit": (
        "Serial {other} stopped working, it came with order {order}.",
        "Please add an item to order {order}, my contract is {other}.",
        "The courier left note {other} but not order {order}.",
        "Order {order} shows as delivered, and my phone {other} never rang.",
        "Coupon {other} should have made order {order} cheaper.",
        "I moved from {other} last week, so stop order {order}.",
        "Why does order {order} contain part {other}?",
        "Order {order} is unknown at branch {other}.",
        "Receipt {other} is fine, but order {order} is not what I bought.",
        "Refund order {order} to the card ending in {other}.",
    ),
}

_TENTHS: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2, 3, 4, 5), "held_out": (6, 7), "audit": (8, 9)}
"""Which tenths of all 5-digit numbers, dealt out by a hash, belong to a set. Cut by a digit instead, the sets would differ
in what their numbers look like, and a policy could learn that."""


def write_night(folder: Path, night: str, seed: int, num_tasks: int) -> Path:
    """Write one night's production tickets, `tasks/<night>.jsonl`, and their answers into truth.jsonl; returns the task file.

    The same arguments write the same files again. Numbers are drawn anew each night, so nights share templates only.
    """
    path = folder / "tasks" / f"{night}.jsonl"
    _write(folder, path, f"night-{night}", "train", f"{seed}/{night}", num_tasks)
    return path


def write_eval_sets(folder: Path, seed: int, num_held_out: int, num_audit: int) -> tuple[Path, Path]:
    """Write `tasks/held_out.jsonl` and `tasks/audit.jsonl` with their answers in truth.jsonl; returns both paths."""
    held_out, audit = folder / "tasks" / "held_out.jsonl", folder / "tasks" / "audit.jsonl"
    _write(folder, held_out, "held-out", "held_out", str(seed), num_held_out)
    _write(folder, audit, "audit", "audit", str(seed), num_audit)
    return held_out, audit


def tickets(split: Split, seed: str, num_tasks: int) -> list[tuple[str, str]]:
    """(ticket, order number) pairs; the same seed gives the same ones, templates take turns."""
    draws = random.Random(f"order desk/{split}/{seed}")
    pool = [
        number for number in map(str, range(10_000, 100_000)) if _tenth(number) in _TENTHS[split] and number != EXAMPLE_NUMBER
    ]
    numbers = draws.sample(pool, 2 * num_tasks)
    templates: list[str] = []
    while len(templates) < num_tasks:
        templates.extend(_in_turn(draws, TEMPLATES[split]))
    pairs = zip(templates, numbers[::2], numbers[1::2], strict=False)
    return [(template.format(order=order, other=other), order) for template, order, other in pairs]


def _in_turn(draws: random.Random, templates: Sequence[str]) -> list[str]:
    """All templates in random order, those with the order number first and those with it second taking turns.

    So that neither place is the right one more often: "take the second number" must not look like reading.
    """
    first = [template for template in templates if template.index("{order}") < template.index("{other}")]
    second = [template for template in templates if template not in first]
    return [
        template
        for pair in zip(draws.sample(first, len(first)), draws.sample(second, len(second)), strict=True)
        for template in pair
    ]


def _tenth(number: str) -> int:
    return int.from_bytes(hashlib.sha256(f"order desk {number}".encode()).digest()[:8], "big") % 10


def _write(folder: Path, path: Path, prefix: str, split: Split, seed: str, num_tasks: int) -> None:
    drawn = tickets(split, seed, num_tasks)
    tasks = [{"task_id": f"{prefix}-{index:04d}", "ticket": ticket} for index, (ticket, _) in enumerate(drawn)]
    answers = {task["task_id"]: order for task, (_, order) in zip(tasks, drawn, strict=True)}
    truth = folder / "truth.jsonl"
    if truth.exists():
        with truth.open(encoding="utf-8") as lines:
            answers = {**{row["task_id"]: row["answer"] for row in map(json.loads, lines)}, **answers}
    # the answers first: a task file without them could be graded by nobody
    _replace(truth, ({"task_id": task_id, "answer": answer} for task_id, answer in sorted(answers.items())))
    _replace(path, tasks)


def _replace(path: Path, rows: Iterable[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)
