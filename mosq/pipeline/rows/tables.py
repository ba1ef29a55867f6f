"""Name the columns of the tables, and the keys of the gold tables.

A reader of tables finds a row of bronze, silver and quarantine by node, stream, shard and seq.
"""

from dataclasses import dataclass

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
DATE = pa.field("date", pa.date32())
PLACE = (pa.field("node", pa.string()), pa.field("stream", pa.string()), pa.field("shard", pa.int32()))
BRONZE = pa.schema(
    [
        DATE,
        *PLACE,
        pa.field("seq", pa.int64()),
        pa.field("time", TIME),
        pa.field("commit_time", TIME),
        pa.field("kind", pa.int8()),
        pa.field("qos", pa.int8()),
        pa.field("reason", pa.int16()),
        pa.field("retain", pa.bool_()),
        pa.field("dup", pa.bool_()),
        pa.field("topic", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("username", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("properties", pa.binary()),
        pa.field("cluster_node", pa.string()),
    ]
)
KEYS = ("date", "node", "stream", "shard", "seq", "time", "topic", "client_id")
KEY_FIELDS = tuple(BRONZE.field(name) for name in KEYS)
RESCUED = "_rescued"
QUARANTINE = pa.schema(
    [*KEY_FIELDS, pa.field("silver", pa.string()), pa.field("reason", pa.string()), pa.field("payload", pa.binary())]
)
# the events of kinds 9 and 10 that the audit reads
EVENTS = pa.schema([*KEY_FIELDS, BRONZE.field("kind"), BRONZE.field("payload")])
WINDOW = (DATE, pa.field("window_start", TIME), pa.field("window_end", TIME), pa.field("node", pa.string()))


def _text(*names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, pa.string()) for name in names)


def _whole(*names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, pa.int64()) for name in names)


@dataclass(frozen=True)
class Gold:
    """Describe a gold table with one row for each key.

    MERGE adds `sums`, and keeps the greatest of `maxima` and the least of `minima`.
    """

    schema: pa.Schema
    sums: tuple[str, ...]
    maxima: tuple[str, ...] = ()
    minima: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.names if name not in self.how)

    @property
    def how(self) -> dict[str, str]:
        """Return the function of each column that MERGE changes."""
        functions = {"sum": self.sums, "max": self.maxima, "min": self.minima}
        return {name: function for function, names in functions.items() for name in names}


CHURN = ("connects", "refused", "disconnects", "takeovers", "expiries")
GOLD = {
    "traffic": Gold(
        pa.schema(
            [
                *WINDOW,
                *_text("stream", "prefix", "topic", "client_id"),
                *_whole("messages", "bytes"),
                pa.field("first_time", TIME),
                pa.field("last_time", TIME),
            ]
        ),
        ("messages", "bytes"),
        ("last_time",),
        ("first_time",),
    ),
    "latency": Gold(
        pa.schema([*WINDOW, *_text("stream"), *_whole("bucket_us", "messages", "max_us")]), ("messages",), ("max_us",)
    ),
    "drops": Gold(
        pa.schema([*WINDOW, pa.field("reason", pa.int16()), *_text("client_id"), *_whole("drops")]), ("drops",)
    ),
    "churn": Gold(pa.schema([*WINDOW, *_text("client_id"), *_whole(*CHURN)]), CHURN),
    "late": Gold(pa.schema([*WINDOW, *_whole("rows")]), ("rows",)),
}
# the values of silver by the time of the event (telemetry.py); MERGE joins the rows of a key with telemetry.folded
TELEMETRY = "gold/telemetry"
FANOUT = "gold/fanout"  # written by `report`, as a whole
TELEMETRY_SCHEMA = pa.schema(
    [
        *WINDOW,
        *_text("stream", "silver", "topic", "client_id", "field"),
        *_whole("count", "late", "misdated"),
        *(pa.field(name, pa.float64()) for name in ("min", "max", "sum", "last")),
        pa.field("last_time", TIME),
    ]
)
TELEMETRY_KEYS = tuple(TELEMETRY_SCHEMA.names[: TELEMETRY_SCHEMA.get_field_index("count")])
# What the records say last, a row for each key. `messages` and `first_time` are of all records of the key (for a value
# they are 0 and null), the other columns are of the record with the greatest `seq`. There are three kinds of rows:
# - messages of a client on a topic: `silver` and `field` are ""
# - the last value of a field: `silver` is the rule
# - a client's connection: `topic`, `silver` and `field` are ""; a start of the broker: `field` is START, `client_id` ""
DEVICES = "gold/devices"
DEVICE_KEYS = ("node", "stream", "shard", "client_id", "topic", "silver", "field")
DEVICE_SCHEMA = pa.schema(
    [
        *PLACE,
        *_text("client_id", "topic", "silver", "field"),
        *_whole("seq"),
        pa.field("time", TIME),
        *_text("value"),
        pa.field("number", pa.float64()),
        pa.field("first_time", TIME),
        *_whole("messages"),
    ]
)
START_FIELD, ONLINE, OFFLINE, EXPIRED = "start", "online", "offline", "expired"
