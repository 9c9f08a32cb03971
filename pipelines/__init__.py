"""The domain of nightshift: plain Python that imports neither dagster nor torch. ARCHITECTURE.md draws the map."""
