"""Read messages in CSV: one line with the columns of the schema.

A cell in double quotes may contain commas, line breaks and doubled quotes. An empty cell is null; in quotes it is an
empty text.
"""

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from mosq.pipeline.rows import exact
from mosq.pipeline.rows.found import Found
from mosq.pipeline.rows.number_rows import NUMBER
from mosq.pipeline.rows.types import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG = "csv: not the columns of the schema"
HOLD = "csv: a number that its column cannot hold exactly"
TOO_LARGE = "csv: larger than 8 MiB"
CELL = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=,|\Z)|([^",\r\n][^,\r\n]*)?(?=,|\Z)')
WHOLE = re.compile(r"[+-]?[0-9]+")
BOOLS = {"true": True, "false": False}


def cells(text: str) -> list[str | None]:
    """Return the cells of a line. Raises UnreadableError."""
    text = text.removesuffix("\n").removesuffix("\r")
    found: list[str | None] = []
    at = 0
    while True:
        cell = CELL.match(text, at)
        if cell is None:
            raise exact.UnreadableError(WRONG)
        found.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        at = cell.end()
        if at == len(text):
            return found
        at += 1


def _number(text: str) -> exact.Number:
    text = text.strip()
    if not NUMBER.match(text):
        raise exact.UnreadableError(exact.TYPE)
    return exact.Number(text, WHOLE.fullmatch(text) is not None)


def _bool(text: str) -> bool:
    if text.strip().lower() not in BOOLS:
        raise exact.UnreadableError(exact.TYPE)
    return BOOLS[text.strip().lower()]


def _fit(type: pa.DataType) -> "Callable[[str], Any]":
    if pat.is_string(type):
        return str
    if pat.is_binary(type):
        return str.encode
    if pat.is_boolean(type):
        return _bool
    fit = exact.fit_of(type)
    if pat.is_date(type) or pat.is_timestamp(type):
        return lambda text: fit(text.strip())
    return lambda text: fit(_number(text))


def check(schema: pa.Schema) -> None:
    """Raise SchemaError if CSV cannot have one of the types."""
    for field in schema:
        if pat.is_nested(field.type):
            raise SchemaError(f"{field.name}: CSV has no columns of type ARRAY, STRUCT or MAP")


class CsvReader:
    """Read messages of a schema. Raises SchemaError if CSV cannot have one of its types."""

    def __init__(self, schema: pa.Schema) -> None:
        check(schema)
        self.types = [field.type for field in schema]
        self.fits = [_fit(type) for type in self.types]

    def read(self, payloads: Any) -> Found:
        """Return the columns of a batch of payloads."""
        rows: list[int] = []
        values: list[list[Any]] = []
        bad: dict[int, str] = {}
        for row, raw in enumerate(payloads.to_pylist()):
            try:
                values.append(self._row(raw))
                rows.append(row)
            except exact.UnreadableError as error:
                bad[row] = {exact.TYPE: WRONG, exact.HOLD: HOLD}.get(str(error), str(error))
        arrays = [pa.array([value[i] for value in values], type) for i, type in enumerate(self.types)]
        return Found(arrays, pa.array(rows, pa.int64()) if bad else None, None, bad)

    def _row(self, raw: bytes | None) -> list[Any]:
        if raw is not None and len(raw) > exact.LARGE:
            raise exact.UnreadableError(TOO_LARGE)
        text = exact.decoded(raw)
        found = cells(text) if '"' in text or "\n" in text or "\r" in text else text.split(",")
        if len(found) != len(self.fits):
            raise exact.UnreadableError(WRONG)
        return [fit(cell) if cell else cell if cell == "" and fit is str and '""' in text else None
                for cell, fit in zip(found, self.fits, strict=True)]
