"""Read messages that are one number as text, such as "21.5", into a column of type DOUBLE."""

import re
from typing import Any

import pyarrow as pa

from mosq.pipeline.rows import exact
from mosq.pipeline.rows.found import Found

SCHEMA = pa.schema([pa.field("value", pa.float64())])
NUMBER = re.compile(r"\A\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*\Z", re.ASCII)
WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
WRONG = "number: not a number"
HOLD = "number: a number that its column cannot hold exactly"
DIGITS_MAX = 10_000


class NumberReader:
    """Read numbers."""

    def __init__(self) -> None:
        self.fit = exact.fit_of(pa.float64())

    def read(self, payloads: Any) -> Found:
        """Return the column of a batch of payloads."""
        values: list[float] = []
        rows: list[int] = []
        bad: dict[int, str] = {}
        for row, raw in enumerate(payloads.to_pylist()):
            try:
                values.append(self._value(raw))
                rows.append(row)
            except exact.UnreadableError as error:
                bad[row] = HOLD if str(error) == exact.HOLD else str(error)
        return Found([pa.array(values, pa.float64())], pa.array(rows, pa.int64()) if bad else None, None, bad)

    def _value(self, raw: bytes | None) -> float:
        if raw is not None and len(raw) > DIGITS_MAX:
            raise exact.UnreadableError(WRONG)
        text = exact.decoded(raw)
        if not NUMBER.match(text):
            raise exact.UnreadableError(WRONG)
        value: float = self.fit(exact.Number(text.strip(), WHOLE.fullmatch(text) is not None))
        return value
