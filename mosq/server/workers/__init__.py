"""`cluster_local N`: a parent and N workers, each of which is a broker (docs/workers.md)."""
