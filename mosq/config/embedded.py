"""The configuration of an embedded broker: defaults, a file or a text, and options that override it. All of them pass
through the same reader line by line, so there is one option table and one set of errors.

If no listener is configured, the broker listens on a free port of 127.0.0.1 and accepts anonymous clients there.
"""

import os

from mosq.config.check import add_warnings, check
from mosq.config.errors import ConfigError, Origin
from mosq.config.model import Config, Listener
from mosq.config.options import OF_LISTENERS, SECURITY, Option, find_option
from mosq.config.parser import EMBEDDED, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    OptionValue = bool | int | str | os.PathLike[str] | list[str] | tuple[str, ...] | None
    Source = str | os.PathLike[str] | None

LOCALHOST = "127.0.0.1"
FREE_PORT = 0
TEXT_NAME = "<config>"              # name in errors, where a file would have its path
# options whose value may be a list, with one line per item; the lines of ADDING_UP add up within one source
REPEATED = ("listener", "log_dest", "shared_strategy", "durability_topic", "stream", "plugin", "websockets_origin",
            "websockets_trusted_proxy", "plugin_load", "global_plugin")
ADDING_UP = ("log_type", "log_dest", "shared_strategy", "durability_topic", "stream")

OTHER_NAMES = {"workers": "cluster_local"}


def embedded_config(source: "Source", options: "Mapping[str, OptionValue]") -> Config:
    """Return the configuration. `source`: None, a path, or a text with at least one line break. Raises ConfigError."""
    config = Config()
    reader = Reader(config)
    if isinstance(source, str) and "\n" in source:
        reader.read_content(TEXT_NAME, source.encode(), main=True)
    elif source is not None:
        config.file = os.fspath(source)
        reader.read_file(config.file, main=True)
    _free_listener(config, reader)
    given = {keyword: value for keyword, value in options.items() if value is not None}
    if "listener" in given:             # listener options apply to the new listeners
        config.listeners, config.local_only = [], False
        given = {"listener": given.pop("listener"), **given}
    for keyword, value in given.items():
        name = OTHER_NAMES.get(keyword, keyword)
        try:
            _override(reader, name, value)
        except ValueError as error:
            raise ConfigError(str(error).replace(name, keyword)) from None      # the name that the caller has used
    if not config.listeners:
        raise ConfigError("There is no listener. Expected at least one.")
    check(config)
    if config.cluster is not None:
        raise ConfigError("A broker inside a program cannot be a node of a cluster. Expected a configuration without "
                          "'cluster', or the command `mosq -c FILE`.", config.origins.get("cluster"))
    add_warnings(config)
    return config


def _free_listener(config: Config, reader: Reader) -> None:
    default = reader.default
    if not config.listeners:
        config.listeners.append(Listener(FREE_PORT, LOCALHOST))
        config.local_only = True
    elif default is not None and reader.default_port is None:
        default.port = FREE_PORT        # created by an option such as max_qos
        if default.host is None:
            default.host = LOCALHOST
            config.local_only = config.listeners == [default]


def _override(reader: Reader, keyword: str, value: "OptionValue") -> None:
    option = find_option(keyword)
    config = reader.config
    if option is not None and option.name == "port" and value != FREE_PORT:
        _one_listener(config, keyword)
        config.listeners[0].port = _number(option, keyword, value)
    elif option is not None and option.name == "port":
        for listener in config.listeners:
            listener.port = FREE_PORT
    elif option is not None and option.name == "bind_address":
        _one_listener(config, keyword)
        config.listeners[0].host = str(value)
        config.local_only = config.local_only and value in (LOCALHOST, "localhost", "::1")
    else:
        if option is not None and option.name in ADDING_UP:
            setattr(config, option.name, ())
        for line in _lines(option, keyword, value):
            of_listeners = option is not None and _is_of_listeners(option, config)
            for reader.current in [*config.listeners] if of_listeners else [None]:
                reader.read_line(line, Origin(EMBEDDED, 1), main=True)


def _is_of_listeners(option: Option, config: Config) -> bool:
    return option.name != "listener" and (
        option.scope in OF_LISTENERS or (option.scope == SECURITY and config.per_listener_settings))


def _one_listener(config: Config, keyword: str) -> None:
    if len(config.listeners) != 1 or config.listeners[0].path is not None:
        on_unix = sum(listener.path is not None for listener in config.listeners)
        raise ValueError(f"'{keyword}' needs exactly one TCP listener; the configuration has {len(config.listeners)} "
                         f"listeners, {on_unix} of them on unix sockets. Use `listener`, or port 0 for a free port for "
                         "each.")


def _number(option: Option, keyword: str, value: "OptionValue") -> int:
    from mosq.config.options.values import parse_value

    number = parse_value(option, keyword, _text(option, value).encode())
    assert isinstance(number, int)
    return number


def _lines(option: Option | None, keyword: str, value: "OptionValue") -> list[bytes]:
    values = value if isinstance(value, list | tuple) and keyword in REPEATED else [value]
    lines = []
    for one in values:
        text = _text(option, one)
        if "\n" in text or "\n" in keyword:
            raise ValueError(f"Invalid '{keyword}' value: it contains a line break. Expected one line.")
        lines.append(f"{keyword} {text}".strip().encode("utf-8", "surrogateescape"))
    return lines


def _text(option: Option | None, value: "OptionValue") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}s" if option is not None and option.kind == "duration" else str(value)
    if isinstance(value, list | tuple):
        return " ".join(str(word) for word in value)
    if isinstance(value, float):
        return str(value)               # no option takes it; the reader names what it expects
    try:
        return os.fspath(value) if value is not None else ""
    except TypeError:
        name = "of an option" if option is None else f"of '{option.name}'"
        raise ValueError(f"A value {name} is {type(value).__name__}. Expected a number, a text, a path, True or False, "
                         "or a list of these.") from None
