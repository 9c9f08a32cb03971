"""Reads: trajectories/trajectories. Writes: groups/splits, groups/groups, groups/wanted. Next: rewards.

Stage 3: which tasks are held out, which trajectories are compared with each other, what each may be used for.

- `assign_splits` gives every task a split, once for ever (I8).
- `seal` cuts trajectories into groups, which never change again (I4).
- `eligibility` says what each trajectory may be used for, from provenance alone; `alone` why it is in no group, `reach` how many
  are; `taken` which of them hold an answer that trained already (I14).
- `overview` says what the log is worth; `want` writes what tomorrow's top-up should run, `wanted_tasks` reads it.
"""

from pipelines.groups.eligibility import alone, eligibility, reach
from pipelines.groups.sealing import depths, overview, seal, violations, want, wanted_tasks
from pipelines.groups.splits import assign_splits
from pipelines.groups.taken import taken

__all__ = [
    "alone",
    "assign_splits",
    "depths",
    "eligibility",
    "overview",
    "reach",
    "seal",
    "taken",
    "violations",
    "want",
    "wanted_tasks",
]
