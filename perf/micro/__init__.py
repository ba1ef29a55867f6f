"""Measure single rooms in one process."""

BATCH = 1_000                   # most filters inserted or removed between two readings of the clock
CLIENT_BYTES = 512              # approximate size of a client's context
