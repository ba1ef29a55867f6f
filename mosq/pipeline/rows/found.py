"""Hold what a reader of payloads found in a batch."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mosq.pipeline.rows import inference

FIELDS_MAX = 1000  # names of fields without column that are counted one by one
TYPED = 1000  # messages whose value gives a field's type
OTHERS = "..."  # stands for all further fields


@dataclass
class Found:
    """Hold columns and the row of the batch that each of their values comes from, and the reasons for the other rows.

    `at` is None if each row of the batch gave one row, in order. `rescued` is None if no row has a rest.
    """

    columns: list[Any]
    at: Any = None
    rescued: Any = None
    bad: dict[int, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)  # of values that are not in silver as the message has them


class Fields:
    """Count fields without a column, and find their types. OTHERS stands for all beyond FIELDS_MAX names."""

    def __init__(self) -> None:
        self.n: Counter[str] = Counter()
        self.types: dict[str, inference.Types] = {}

    def add(self, values: dict[str, Any]) -> None:
        """Count the fields of a message."""
        for name, value in values.items():
            if name not in self.n and len(self.n) >= FIELDS_MAX:
                name, value = OTHERS, None
            self.n[name] += 1
            if self.n[name] <= TYPED:
                self.types.setdefault(name, inference.Types()).add(value)

    def add_nested(self, paths: set[str]) -> None:
        """Count the fields that lie within objects of a message; no column is made for them."""
        for name in sorted(paths):
            self.n[name if name in self.n or len(self.n) < FIELDS_MAX else OTHERS] += 1

    def content(self) -> dict[str, tuple[str, int]]:
        """Return the type, "" if the field cannot be a column, and the number of messages of each field."""
        return {
            name: (inference.type_of(name, self.types[name]) if name in self.types else inference.LEFT_OUT, n)
            for name, n in self.n.items()
        }


def labelled(name: str) -> str:
    """Return the name of a field as logs and `status` show it: a message may have a field whose name is empty."""
    return name or '""'


def placed(parts: list[tuple[Any, list[Any]]], n: int) -> Any:
    """Return an array of all values in the order of their rows; `parts` has arrays and the rows of their values."""
    if len(parts) == 1:
        return parts[0][0]
    rows = pa.concat_arrays([pa.array(rows, pa.int64()) for _, rows in parts])
    return pa.concat_arrays([array for array, _ in parts]).take(pa.compute.sort_indices(rows))
