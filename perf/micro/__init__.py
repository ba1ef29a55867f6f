"""Benchmarks of single rooms, in one process."""

BATCH = 1_000                   # filters inserted or removed between two readings of the clock, at most
CLIENT_BYTES = 512              # about what the context of a client takes
