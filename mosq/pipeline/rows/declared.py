"""Describe what a rule declares about its columns: the event's time, the values that gold adds up, and its key."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from mosq.pipeline.rows.work import Rule

TIME_UNITS = ("s", "ms", "us", "ns")
PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
ROW_NAMES = ("node", "stream", "topic", "client_id")  # of each row; a field of the same name goes before
FORMATS = ("json", "csv", "number")  # whose rules can declare this


@dataclass(frozen=True)
class Event:
    """Name the columns of a rule for gold/telemetry by their fields in messages.

    An event whose time differs from the broker's time by more than `behind_us` or `ahead_us` has a wrong clock.
    """

    time: str | None = None  # None: the broker's time
    unit: str = ""  # one of TIME_UNITS, of a time that is a number
    behind_us: int = 0
    ahead_us: int = 0
    values: tuple[str, ...] = ()  # (): all numbers but the time

    def as_setup(self) -> dict[str, Any]:
        """Return what the tables depend on, as JSON gives it back."""
        return {
            "time": self.time,
            "unit": self.unit,
            "behind_us": self.behind_us,
            "ahead_us": self.ahead_us,
            "values": list(self.values),
        }

    @classmethod
    def of_setup(cls, content: dict[str, Any]) -> "Event":
        return cls(**content | {"values": tuple(content["values"])})


@dataclass(frozen=True)
class Unique:
    """Name the columns of a rule's key by their fields in messages, or by ROW_NAMES.

    A row whose key silver has within the horizon does not enter it. At most `limit` keys are remembered.
    """

    names: tuple[str, ...]
    horizon_us: int
    limit: int

    def as_setup(self) -> dict[str, Any]:
        """Return what the tables depend on, as JSON gives it back."""
        return {"names": list(self.names), "horizon_us": self.horizon_us}


def _is_number(type: "pa.DataType") -> bool:
    import pyarrow.types as pat

    return bool(pat.is_integer(type) or pat.is_floating(type) or pat.is_decimal(type))


def value_names(rule: "Rule", schema: "pa.Schema") -> list[str]:
    """Return the fields of a rule that gold/telemetry adds up."""
    assert rule.event is not None
    if rule.event.values:
        return list(rule.event.values)
    return [field.name for field in schema if _is_number(field.type) and field.name != rule.event.time]


def key_columns(rule: "Rule", schema: "pa.Schema") -> list[str]:
    """Return the columns of silver that are a rule's key."""
    from mosq.pipeline.rows import types

    assert rule.unique is not None
    return [types.column(name) if name in schema.names else name for name in rule.unique.names]


def key_problem(unique: Unique, schema: "pa.Schema") -> str | None:
    """Return what is wrong in a key for this schema, or None."""
    import pyarrow.types as pat

    for name in unique.names:
        if name in schema.names:
            if pat.is_nested(schema.field(name).type):
                return f"key: expected columns of plain types; {name} is {schema.field(name).type}"
        elif name not in ROW_NAMES:
            known = ", ".join([*schema.names, *(one for one in ROW_NAMES if one not in schema.names)])
            return f"key: expected some of {known}; got {name!r}"
    return None


def problem(event: Event, schema: "pa.Schema") -> str | None:
    """Return what is wrong in a declaration for this schema: the key of the settings and what is expected, or None."""
    import pyarrow.types as pat

    if event.time is not None:
        if event.time not in schema.names:
            return f"time_column: expected one of the columns {', '.join(schema.names)}; got {event.time!r}"
        type = schema.field(event.time).type
        if pat.is_timestamp(type):
            if event.unit:
                return f"time_unit: expected none, as {event.time} is a TIMESTAMP; got {event.unit!r}"
        elif not _is_number(type):
            return f"time_column: expected a TIMESTAMP or a number; got {event.time!r}, which is neither"
        elif not event.unit:
            return f"time_unit is missing: expected one of {', '.join(TIME_UNITS)}, as {event.time} is a number"
    for name in event.values:
        if name not in schema.names or not _is_number(schema.field(name).type):
            return f"values: expected columns of numbers; got {name!r}"
    if not event.values and not any(_is_number(field.type) and field.name != event.time for field in schema):
        return "values: expected a column of numbers beside the time, but there is none"
    return None
