"""Reads the broker's journal streams from Python, or as columns for Arrow (`mosq.journal.arrow`). See
docs/journal.md."""

from mosq.journal.stream import Lost, Mark, Range, Record, Stream

__all__ = ["Lost", "Mark", "Range", "Record", "Stream"]
