"""`python -m pipelines` is the `nightshift` command."""

from pipelines.cli import main

if __name__ == "__main__":
    main()
