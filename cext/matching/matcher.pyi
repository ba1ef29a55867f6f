# Match topics against filters, in columns; see matcher.pyx.
from typing import Any, TypeAlias

Buffer: TypeAlias = Any             # bytes, an Arrow buffer or a numpy array

PROBLEMS: dict[int, str]

class Column:
    rows: int
    def __init__(self, offsets: Buffer, data: Buffer, first: int, rows: int) -> None: ...

def problems(column: Column, filters: bool) -> bytes: ...

class Matcher:
    n: int
    def __init__(self, filters: Column) -> None: ...
    def match(self, topics: Column, first: int = 0, most: int = ...) -> tuple[bytes, bytes, int]: ...
    def count(self, topics: Column, tally: Buffer | None = None) -> tuple[bytes, int]: ...
