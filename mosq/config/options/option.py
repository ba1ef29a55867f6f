"""The type of a row of the option table, and short functions to write one. Knows no option by name.

Modules that run before the broker listens import no `typing`, `dataclasses` or `enum` at run time: each costs 5 to 15
ms of the 30 ms in which the broker must be listening.
"""

Default = bool | int | str | tuple[str, ...] | None

# scopes
GLOBAL = "global"
LISTENER = "listener"               # needs a `listener` (or `port`) line above it
LISTENER_ONLY = "listener!"         # as LISTENER, but not allowed for the default listener
LISTENER_OR_DEFAULT = "listener*"   # creates the default listener on port 1883 if needed
SECURITY = "security"               # global; with per_listener_settings true of a listener
BRIDGE = "bridge"                   # inside a `connection` block
PLUGIN = "plugin"                   # after a plugin line
OF_LISTENERS = (LISTENER, LISTENER_ONLY, LISTENER_OR_DEFAULT)

# what SIGHUP does with a changed value
LIVE = "live"                       # applies at once to all clients
NEW = "new connections"             # does not apply to connected clients
LISTENER_RESTART = "listener restart"   # the listener closes and opens again: its clients must reconnect
RESTART = "restart of the broker"   # applies at the next start; SIGHUP logs that

NEVER_S = -1                        # durations: never
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
UINT16_MAX = 65535
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
PACKET_MAX = 268_435_455            # [v5 2.1.4] the largest remaining length
FIRST_VERSION = "0.2.0"           # the first version that was released


class Option:
    """A row of the option table."""

    __slots__ = ("name", "kind", "default", "scope", "help", "low", "high", "below", "above", "choices", "unit",
                 "aliases", "reload", "ignored", "own", "prefix", "since", "deprecated", "deprecated_by", "error_text",
                 "once", "label", "exact")

    def __init__(self, name: str, kind: str,    # parameters: a record; each is one slot
                 default: Default, scope: str, help: str, *, low: int = 0,
                 high: int = INT32_MAX, below: int | None = None, above: int | None = None,
                 choices: tuple[str, ...] = (), unit: str = "", aliases: tuple[str, ...] = (), reload: str = LIVE,
                 ignored: str = "", own: bool = False, prefix: bool = False, since: str = FIRST_VERSION,
                 deprecated: str | None = None, deprecated_by: str = "", error_text: str = "", once: bool = False,
                 label: str = "", exact: bool = False) -> None:
        self.name = name
        self.kind = kind                # bool, int, count (off is 0), string, path, duration, enum, words, special
        self.default = default
        self.scope = scope
        self.help = help
        self.low = low                  # smallest int
        self.high = high                # largest int; bytes of a string
        self.below = below              # int: replaces values below `low`, as in Mosquitto; None: they are errors
        self.above = above              # int: the same for values above `high`
        self.choices = choices          # enum, words
        self.unit = unit
        self.aliases = aliases
        self.reload = reload            # what SIGHUP does with a change
        self.ignored = ignored          # why it has no effect in this version; "": it has one
        self.own = own                  # whether only mosq knows the option
        self.prefix = prefix            # whether the name is the beginning of keywords
        self.since = since              # the first version of mosq with the option
        self.deprecated = deprecated    # Mosquitto's text after "is now deprecated"; None: not deprecated
        self.deprecated_by = deprecated_by  # the option to write instead
        self.error_text = error_text    # Mosquitto's error for a bad value, with {keyword} and {value}
        self.once = once                # string: Mosquitto refuses a second line
        self.label = label              # Mosquitto's name in errors if it is not the keyword
        self.exact = exact              # int: decimal digits only, also no sign. Others are as in Mosquitto

    def expected(self) -> str:
        """Return the expected form of a value, for error messages and documentation."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "int":
            return f"a number from {self.low} to {self.high}" + (f" ({self.unit})" if self.unit else "")
        if self.kind == "count":
            return f"a number from {self.low} to {self.high}, or off"
        if self.kind == "duration":
            return "a number with a unit s, h, d, w, m or y (seconds to years), such as 14d"
        if self.kind in ("enum", "words"):
            several = "one or more of " if self.kind == "words" else "one of "
            return several + ", ".join(self.choices)
        return "a path" if self.kind == "path" else "some text"


# ---- short ways to write a row; mypy checks them less strictly than the constructor that they call

def flag(                               # parameters: the fields of a bool Option
        name: str, default: bool | None, scope: str, help: str, *, reload: str = LIVE, aliases: tuple[str, ...] = (),
         ignored: str = "", own: bool = False, deprecated: str | None = None, deprecated_by: str = "") -> Option:
    """Return a row for a bool option."""
    return Option(name, "bool", default, scope, help, reload=reload, aliases=aliases, ignored=ignored, own=own,
                  deprecated=deprecated, deprecated_by=deprecated_by)


def number(                             # parameters: the fields of an int Option
        name: str, default: int, scope: str, help: str, low: int, high: int, *, unit: str = "", reload: str = LIVE,
           below: int | None = None, above: int | None = None, error_text: str = "", aliases: tuple[str, ...] = (),
           ignored: str = "", own: bool = False, deprecated: str | None = None, deprecated_by: str = "",
           label: str = "", exact: bool = False) -> Option:
    """Return a row for an int option with its range and unit."""
    return Option(name, "int", default, scope, help, low=low, high=high, unit=unit, reload=reload, below=below,
                  above=above, error_text=error_text, aliases=aliases, ignored=ignored, own=own, deprecated=deprecated,
                  deprecated_by=deprecated_by, label=label, exact=exact)


def text(                               # parameters: the fields of a text Option
        name: str, scope: str, help: str, kind: str = "string", *, default: str | None = None, high: int = UINT16_MAX,
         reload: str = LIVE, aliases: tuple[str, ...] = (), ignored: str = "", own: bool = False, prefix: bool = False,
         deprecated: str | None = None, deprecated_by: str = "", once: bool = False, label: str = "") -> Option:
    """Return a row for a string option; `high` is the largest number of bytes."""
    return Option(name, kind, default, scope, help, high=high, reload=reload, aliases=aliases, ignored=ignored, own=own,
                  prefix=prefix, deprecated=deprecated, deprecated_by=deprecated_by, once=once, label=label)


def choice(                             # parameters: the fields of an enum Option
        name: str, default: str, scope: str, help: str, choices: tuple[str, ...], *, reload: str = LIVE,
           ignored: str = "", own: bool = False, error_text: str = "") -> Option:
    """Return a row for an option with one of several words."""
    return Option(name, "enum", default, scope, help, choices=choices, reload=reload, ignored=ignored, own=own,
                  error_text=error_text)
