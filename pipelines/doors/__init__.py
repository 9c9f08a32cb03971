"""One door per outside system: nothing else in the project imports deltalake, duckdb, mlflow, litellm or httpx."""
