"""The orchestration: everything Dagster and nothing else. `definitions.py` is the one screen that wires it."""
