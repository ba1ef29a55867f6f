"""The shim in C (cext/shim/) as Python sees it: its functions and structs. Knows the layout, not what a plugin decides.

The library is loaded with RTLD_GLOBAL, because plugins look for Mosquitto's functions in the process. ctypes releases
the GIL during each call.
"""

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_long, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHIM = "_shim.abi3.so"
# events of Mosquitto's interface
RELOAD, ACL_CHECK, BASIC_AUTH, EXT_AUTH_START, EXT_AUTH_CONTINUE, CONTROL, MESSAGE_IN = 1, 2, 3, 4, 5, 6, 7
PSK_KEY, TICK, DISCONNECT, CONNECT, SUBSCRIBE, UNSUBSCRIBE, MESSAGE_OUT, CLIENT_OFFLINE = 8, 9, 10, 11, 12, 13, 27, 28
RESTORE = 14
PERSIST = frozenset((*range(14, 27), 29, 30))   # about the broker's state
# results
AUTH_DELAYED, AUTH_CONTINUE, SUCCESS, INVAL, NOT_SUPPORTED, AUTH, ACL_DENIED = -5, -4, 0, 3, 10, 11, 12
PLUGIN_DEFER, PLUGIN_IGNORE = 17, 32
# what a plugin asks of the broker
DO_LOG, DO_PUBLISH, DO_KICK_ID, DO_KICK_USER, DO_COMPLETE, DO_OUTCOME = 1, 2, 3, 4, 5, 6
FACTS_BYTES = 24


class Facts(Structure):
    """The facts about a client, as the data plane sends them (ClientFacts)."""

    _fields_ = [("connection", c_uint64), ("subscriptions", c_uint32), ("keepalive", c_uint16),
                ("listener_port", c_uint16), ("version", c_uint8), ("clean_start", c_uint8), ("websockets", c_uint8),
                ("unused", c_uint8 * 5)]


class Option(Structure):
    """A `plugin_opt_` line."""

    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Call(Structure):
    """A call of a plugin, with its data and its results (struct Call of cext/shim/shim.h)."""

    _fields_ = [
        ("client_id", c_char_p), ("username", c_char_p), ("address", c_char_p), ("certificate", c_char_p),
        ("method", c_char_p), ("topic", c_char_p), ("data", c_char_p), ("properties", c_char_p), ("facts", Facts),
        ("login", c_uint64), ("data_n", c_uint32), ("properties_n", c_uint32), ("access", c_int), ("qos", c_int),
        ("retain", c_int), ("reason", c_int), ("identifier", c_uint32), ("has_options", c_int),
        ("options", POINTER(Option)),
        ("n_options", c_int), ("result", c_int), ("asked", c_int), ("new_username", c_char_p),
        ("new_client_id", c_char_p), ("new_topic", c_char_p), ("new_data", c_void_p), ("new_properties", c_void_p),
        ("new_data_n", c_uint32),
        ("new_properties_n", c_uint32), ("user_set", c_int), ("changed", c_int), ("properties_changed", c_int),
        ("new_qos", c_int), ("new_retain", c_int), ("reason_code", c_int), ("reason_string", c_char_p),
        ("next_ms", c_long), ("actions", c_int)]

    def given_data(self) -> bytes:
        """Return the payload or the authentication data that the plugin gave."""
        return ctypes.string_at(self.new_data, self.new_data_n) if self.new_data else b""

    def given_properties(self) -> bytes:
        """Return the properties that the plugin gave."""
        return ctypes.string_at(self.new_properties, self.new_properties_n) if self.new_properties else b""


class Action(Structure):
    """A request of a plugin to the broker (struct Action of cext/shim/shim.h)."""

    _fields_ = [("next", c_void_p), ("kind", c_int), ("level", c_int), ("qos", c_int), ("retain", c_int),
                ("connection", c_uint64), ("login", c_uint64), ("text", c_char_p), ("client_id", c_char_p),
                ("data", c_void_p), ("data_n", c_uint32), ("properties", c_void_p), ("properties_n", c_uint32)]

    def given_data(self) -> bytes:
        """Return the payload."""
        return ctypes.string_at(self.data, self.data_n) if self.data else b""

    def given_properties(self) -> bytes | None:
        """Return the properties; None: none."""
        return ctypes.string_at(self.properties, self.properties_n) if self.properties else None


class Stored(Structure):
    """A part of the broker's state (struct Stored of cext/shim/shim.h)."""

    _fields_ = [("client_id", c_char_p), ("username", c_char_p), ("topic", c_char_p), ("data", c_void_p),
                ("properties", c_void_p), ("store_id", c_uint64), ("cmsg_id", c_uint64), ("ends_s", c_int64),
                ("will_due_s", c_int64), ("data_n", c_uint32), ("properties_n", c_uint32), ("will_delay_s", c_uint32),
                ("expiry_s", c_uint32), ("identifier", c_uint32), ("packet_max", c_uint32), ("pid", c_uint16),
                ("port", c_uint16), ("qos", c_uint8), ("retain", c_uint8), ("dup", c_uint8), ("direction", c_uint8),
                ("state", c_uint8), ("options", c_uint8)]

    def given_data(self) -> bytes:
        """Return the payload."""
        return ctypes.string_at(self.data, self.data_n) if self.data else b""

    def given_properties(self) -> bytes:
        """Return the properties."""
        return ctypes.string_at(self.properties, self.properties_n) if self.properties else b""


TAKER = ctypes.CFUNCTYPE(c_int, c_int, POINTER(Stored))


def stored_of(fields: "dict[str, Any]") -> Stored:
    """Return a part of the state; `data` and `properties` are bytes, which `fields` must keep."""
    stored = Stored(**{name: value for name, value in fields.items() if name not in ("data", "properties")})
    for name in ("data", "properties"):
        value = fields.get(name)
        if value:
            setattr(stored, name, ctypes.cast(c_char_p(value), c_void_p).value)
            setattr(stored, f"{name}_n", len(value))
    return stored


def shim_path() -> str:
    """Return the path of the shim."""
    import mosq.version as here

    return os.path.join(os.path.dirname(os.path.abspath(here.__file__)), SHIM)


def open_shim() -> "Any":
    """Load the shim and declare its functions. Raises OSError."""
    shim = ctypes.CDLL(shim_path(), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    for name, result, arguments in (
            ("load", c_void_p, [c_char_p, c_char_p, POINTER(Option), c_int, c_int, POINTER(c_int)]),
            ("end", None, [c_void_p]), ("events", c_uint32, [c_void_p]), ("name", c_char_p, [c_void_p]),
            ("busy", c_int, [c_void_p]), ("check", c_int, [c_char_p]),
            ("topics", c_int, [c_void_p, c_char_p, c_int]), ("call", c_int, [c_void_p, c_int, POINTER(Call)]),
            ("call_clear", None, [POINTER(Call)]), ("watch_crashes", None, [c_char_p]), ("location", None, [c_char_p]),
            ("action_take", POINTER(Action), []), ("action_free", None, [POINTER(Action)]), ("actions_lost", c_int, []),
            ("actions_waiting", c_int, []), ("pauses", None, [c_int]), ("workers", None, [c_int]),
            ("wake_fd", c_int, []), ("client_gone", None, [c_uint64]), ("client_known", None, [POINTER(Call)]),
            ("deny_special", None, [c_void_p, c_int]), ("client_is_known", c_int, [c_uint64]),
            ("realm", c_void_p, [POINTER(c_void_p), c_int, c_int, c_int]),
            ("persist", c_int, [c_void_p, c_int, POINTER(Stored)]), ("restore", c_int, [c_void_p, TAKER])):
        function = getattr(shim, f"mosq_shim_{name}", None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
    return shim


def address_of(shim: "Any", name: str) -> int:
    """Return the address of a function of the shim."""
    return ctypes.cast(getattr(shim, f"mosq_shim_{name}"), c_void_p).value or 0


def options_array(options: dict[str, str] | list[tuple[str, str]]) -> "tuple[Any, int]":
    """Return an array of options for C, and its length."""
    pairs = list(options.items()) if isinstance(options, dict) else options
    array = (Option * (len(pairs) + 1))()
    for i, (key, value) in enumerate(pairs):
        array[i].key, array[i].value = key.encode(), value.encode()
    return array, len(pairs)
