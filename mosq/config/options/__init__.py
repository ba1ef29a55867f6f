"""The table of all options of ``mosquitto.conf``. The parser and its errors, `--test-config`, docs/options.md, the
hints for unknown options and the behaviour of a reload all use this table. It lists the options; it does not read
files."""

from mosq.config.options.option import (
    BRIDGE,
    GLOBAL,
    INT32_MAX,
    INT64_MAX,
    LISTENER,
    LISTENER_ONLY,
    LISTENER_OR_DEFAULT,
    LISTENER_RESTART,
    LIVE,
    NEVER_S,
    NEW,
    OF_LISTENERS,
    PACKET_MAX,
    PLUGIN,
    RESTART,
    SECURITY,
    UINT16_MAX,
    UINT32_MAX,
    Option,
)
from mosq.config.options.rows_bridge import BRIDGES
from mosq.config.options.rows_broker import (
    ACCESS,
    DURABILITIES,
    GENERAL,
    LOG,
    LOG_DESTS,
    OWN,
    PERSISTENCE,
    SHARED_STRATEGIES,
)
from mosq.config.options.rows_listener import LISTENERS, TLS

__all__ = [
    "BOOL_WORDS", "BRIDGE", "BY_KEYWORD", "DURABILITIES", "DURABILITY_LINES_MAX", "GLOBAL", "INT32_MAX",
    "INT64_MAX", "LISTENER", "LISTENER_ONLY",
    "LISTENER_OR_DEFAULT", "LISTENER_RESTART", "LIVE", "LOG_DESTS", "NEVER_S", "NEW",
    "OF_LISTENERS", "OPTIONS", "PACKET_MAX", "PLUGIN", "RESTART", "SECTIONS", "SECURITY", "SHARED_LINES_MAX",
    "SHARED_STRATEGIES", "STREAM_FILTERS_MAX", "STREAM_LINES_MAX", "TUNING", "UINT16_MAX", "UINT32_MAX", "Option",
    "find_option",
]

SHARED_LINES_MAX = 1000
DURABILITY_LINES_MAX = 64       # every publication checks them
STREAM_LINES_MAX = 32
STREAM_FILTERS_MAX = 256        # limit for one line
BOOL_WORDS = {"true": True, "1": True, "false": False, "0": False}

# in the order of docs/options.md
SECTIONS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("General", GENERAL), ("Listeners", LISTENERS), ("TLS", TLS), ("Login and access", ACCESS),
    ("Log", LOG), ("Persistence", PERSISTENCE), ("Options of mosq itself", OWN), ("Bridges", BRIDGES),
)
OPTIONS: tuple[Option, ...] = tuple(option for _, options in SECTIONS for option in options)

TUNING = ("index", "letter_index", "hash_buckets", "child_hash_threshold", "match_cache", "pool", "pool_grow",
          "pool_idle_max")

BY_KEYWORD: dict[str, Option] = {keyword: option for option in OPTIONS for keyword in (option.name, *option.aliases)}
_PREFIXES = tuple((keyword, option) for keyword, option in BY_KEYWORD.items() if option.prefix)


def find_option(keyword: str) -> Option | None:
    """Return the option that a keyword names, or None."""
    option = BY_KEYWORD.get(keyword)
    if option is not None:
        return option
    for prefix, prefixed in _PREFIXES:
        if keyword.startswith(prefix):
            return prefixed
    return None
