"""Reads a `mosquitto.conf`: one option per line. The order matters, because an option belongs to the listener, bridge
or plugin above it. Stops at the first error. Opens only the files that the configuration includes, and never writes, so
a check is harmless.

Blanks and tabs are equal, also before an option or a comment. The reader accepts all that Mosquitto accepts, and a
little more. Time and memory are linear in the size of the input.
"""

import os

from mosq.config.bridge import Bridge
from mosq.config.check import add_warnings, check
from mosq.config.errors import ConfigError, Origin
from mosq.config.model import Config, Listener
from mosq.config.options import (
    BRIDGE,
    BY_KEYWORD,
    LISTENER,
    LISTENER_ONLY,
    LISTENER_OR_DEFAULT,
    OF_LISTENERS,
    PLUGIN,
    SECURITY,
    Option,
    find_option,
)
from mosq.config.options.values import SHOWN_MAX, Value, decode, empty, ignored_words, parse_value
from mosq.config.plugin import DYNAMIC_SECURITY, Plugin
from mosq.config.special import (
    durability_topics,
    listener_line,
    log_dests,
    log_types,
    named_plugin,
    plugin_option,
    plugin_path,
    shared_strategies,
    unknown_keyword,
    versions,
)
from mosq.log_types import INFORMATION, NOTICE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND_LINE = "<command line>"
EMBEDDED = "<options>"
OVERRIDES = (COMMAND_LINE, EMBEDDED)    # their lines are read after the file's and override it
PORTS_MAX = 10          # -p on the command line
LINE_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 64 << 20
WARNINGS_MAX = 1000
DEFAULT_PORT = 1883
BLANKS = b" \t\r\n\v\f"
LOCALHOSTS = ("127.0.0.1", "::1")
PLUGIN_LINES = ("plugin", "global_plugin")
TLS_FILES = ("cafile", "certfile")


def load_config(path: str | None = None, ports: tuple[int, ...] = (), overrides: tuple[str, ...] = ()) -> Config:
    """Return the configuration of a file (None: defaults), with the ports and option lines of the command line. Raises
    ConfigError."""
    config = Config()
    reader = Reader(config)
    if path is not None:
        config.file = path
        reader.read_file(path, main=True)
    for line in overrides:
        try:
            reader.read_line(line.encode("utf-8", "surrogateescape"), Origin(COMMAND_LINE, 1), main=True)
        except ValueError as error:
            raise ConfigError(f"{error} (On the command line: --{line.replace('_', '-')})") from None
    if config.listeners and not reader.is_default_implied():
        if ports:
            config.warnings.append("The ports of the command line (-p) are ignored: the configuration has a listener.")
    else:
        _listen_locally(config, ports or (DEFAULT_PORT,), reader.default)
    check(config)
    add_warnings(config)
    return config


def _listen_locally(config: Config, ports: tuple[int, ...], default: Listener | None) -> None:
    if len(ports) > PORTS_MAX:
        raise ConfigError(f"Only {PORTS_MAX} ports can be specified on the command line. Expected fewer than "
                          f"{len(ports)}.")
    config.local_only = True
    config.listeners = []
    for port in ports:
        for host in LOCALHOSTS:
            listener = Listener(port, host)
            if default is not None:                     # options such as `max_connections` without a listener line
                listener.__dict__.update(default.__dict__, port=port, host=host)
            config.listeners.append(listener)


def trusted_proxy(keyword: str, text: str) -> str:
    """Return a network in its usual form, or `unix`."""
    if text == "unix":
        return text
    from ipaddress import ip_network

    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        raise ValueError(f"Invalid '{keyword}' value '{text[:SHOWN_MAX]}'. Expected an IP address, a network such as "
                         "192.0.2.0/24, or unix.") from None


# options that may be repeated for a listener: the largest number of lines, and what reads the text of one
REPEATED_OF_LISTENER: "dict[str, tuple[int, Callable[[str, str], str]]]" = {
    "websockets_origin": (10_000, lambda keyword, text: text),
    "websockets_trusted_proxy": (1000, trusted_proxy),
}


class Reader:
    """The state of reading: the listener, bridge and plugin to which the next option belongs."""

    def __init__(self, config: Config) -> None:
        self.config = config
        # state of the file that is being read
        self.current: Listener | None = None
        self.bridge: Bridge | None = None
        self.plugin: Plugin | None = None
        self.included_at: Origin | None = None
        # state of the whole configuration
        self.default: Listener | None = None            # made by `port`, `bind_address` and options before any listener
        self.default_port: int | None = None
        self.security_seen = False
        self.reported: set[str] = set()
        self.bridge_names: set[str] = set()

    def is_default_implied(self) -> bool:
        """Return whether the only listener is one that some other option implied. It then stays local only, as in
        Mosquitto."""
        default = self.default
        return (default is not None and self.config.listeners == [default]
                and not {"port", "bind_address"} & default.origins.keys())

    # ---- files and lines

    def read_file(self, path: str, main: bool, included_at: Origin | None = None) -> None:
        """Read a file and the files it includes. Raises ConfigError."""
        if os.path.isdir(path):
            raise ConfigError(f"Config file '{path}' is a directory. Expected a file.", included_at)
        try:
            with open(path, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"Unable to open config file '{path}'. Expected a file that can be read: {reason}.",
                              included_at) from None
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"Unable to read config file '{path}'. Expected at most {FILE_BYTES_MAX >> 20} MiB.",
                              included_at)
        self.config.sources.append((path, included_at))
        outer = self.current, self.bridge, self.plugin, self.included_at
        self.included_at = included_at
        self.read_content(path, content, main)
        self.current, self.bridge, self.plugin, self.included_at = outer

    def read_content(self, path: str, content: bytes, main: bool) -> None:
        """Read the lines of a file. Raises ConfigError."""
        self.current = self.bridge = self.plugin = None         # a block ends with its file
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            line = line.strip(BLANKS)
            if line and not line.startswith(b"#"):
                origin = Origin(path, number, self.included_at)
                try:
                    self.read_line(line, origin, main)
                except ValueError as error:
                    raise ConfigError(str(error), origin) from None

    def read_line(self, line: bytes, origin: Origin, main: bool) -> None:
        """Apply one line. Raises ValueError."""
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"A line of {len(line)} bytes. Expected at most {LINE_BYTES_MAX}.")
        first, *rest = line.split(None, 1)
        keyword = first.decode("utf-8", "backslashreplace")
        raw = rest[0] if rest else b""
        option = find_option(keyword)
        if option is None:
            raise ValueError(unknown_keyword(keyword))
        self._needs(option, keyword)
        if option.name == "plugin_opt_":
            plugin_option(self.plugin, keyword, decode(option, keyword, raw))
            return
        if option.name in PLUGIN_LINES:
            self._take_plugin(option, keyword, plugin_path(option, keyword, raw), origin)
            return
        try:
            value = parse_value(option, keyword, raw)
        except ValueError as error:
            behind = ignored_words(option, raw.decode("utf-8", "replace")) if option.kind in ("int", "count") else ""
            if not behind:
                raise
            raise ValueError(f"{error} '{behind}' behind the number has no meaning: write it without a unit.") from None
        self._remark(option, keyword, value, raw, origin)
        if option.scope == BRIDGE and self.bridge is not None:
            self.bridge.take(option, keyword, value, origin)
        elif option.kind == "special":
            self._take_special(option, keyword, str(value), origin, main)
        elif option.name == "auth_plugin_deny_special_chars":
            assert self.plugin is not None
            self.plugin.deny_special_chars = bool(value)
        elif option.name == "plugin_thread":
            assert self.plugin is not None
            self.plugin.on_loop, self.plugin.thread_origin = value == "loop", origin
        elif option.name in ("port", "bind_address"):
            self._take_default_listener(option, value, origin)
        elif option.scope in OF_LISTENERS:
            self._take_listener_option(option, keyword, value, origin)
        elif option.kind != "anything":
            self._take_global(option, keyword, value, origin)

    def _needs(self, option: Option, keyword: str) -> None:
        """Raise ValueError if the line that this option needs above it is missing."""
        scope, current = option.scope, self.current
        if scope == BRIDGE and self.bridge is None:
            raise ValueError(f"The '{keyword}' option requires a bridge to be defined first. Expected a line "
                             "`connection NAME` above it.")
        if scope == PLUGIN and self.plugin is None:
            if option.prefix:
                raise ValueError(f"The '{keyword}' option requires plugin/global_plugin/plugin_load to be defined "
                                 "first. Expected such a line above it.")
            article = "An" if keyword[0] in "aeiou" else "A"
            raise ValueError(f"{article} {keyword} option exists in the config file without a plugin. Expected a line "
                             "`plugin` above it.")
        if option.name == "listener":
            return
        if ((scope in (LISTENER, LISTENER_ONLY) and current is None)
                or (scope == LISTENER_ONLY and current is self.default)
                or (scope == SECURITY and current is None and self.config.per_listener_settings)):
            raise ValueError(f"The '{keyword}' option requires a listener to be defined first. Expected a line "
                             "`listener PORT` above it.")

    def _remark(self, option: Option, keyword: str, value: Value, raw: bytes, origin: Origin) -> None:
        """Add the warnings about this line that are no errors."""
        ignored = ignored_words(option, raw.decode("utf-8", "replace"))
        if ignored:
            self._warn(f"'{keyword}' ({origin}): '{ignored}' behind the value has no meaning and is ignored.")
        if option.ignored and option.name not in self.reported and (option.default is None or value != option.default):
            self.reported.add(option.name)
            if option.kind == "anything" and keyword in option.ignored:     # Mosquitto's wording
                self._warn(f"{option.ignored} ({origin})")
            else:
                shown = keyword if option.kind in ("string", "path") else f"{keyword} {str(value).lower()}"
                self._warn(f"'{shown}' ({origin}) has no effect: {option.ignored}.")
        if option.deprecated is not None:
            self._note(NOTICE, f"The '{keyword}' option is now deprecated and will be removed in version 3.0. "
                               f"{option.deprecated}".rstrip())
        if option.name == "message_size_limit":
            self._note(NOTICE, "Note: It is recommended to replace `message_size_limit` with `max_packet_size`.")
        if option.name == "allow_anonymous" and self.config.per_listener_settings:
            self._note(NOTICE, "You are using the 'allow_anonymous' option with 'per_listener_settings true'. Please "
                               "replace this with 'listener_allow_anonymous'.")

    def _warn(self, text: str) -> None:
        if len(self.config.warnings) < WARNINGS_MAX:
            self.config.warnings.append(text)

    def _note(self, type_bit: int, text: str) -> None:
        if text not in self.reported and len(self.config.notices) < WARNINGS_MAX:
            self.reported.add(text)
            self.config.notices.append((type_bit, text))

    # ---- each kind of option

    def _take_global(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        config, name = self.config, option.name
        if option.scope == SECURITY:
            self._take_security(option, keyword, value, origin)
            return
        if name == "per_listener_settings":
            if config.per_listener_settings:
                return                                  # Mosquitto ignores a false after a true
            if value and self.security_seen:
                raise ValueError("per_listener_settings must be set before any other security settings. "
                                 "Expected it on the first line.")
        elif name == "log_type":
            value = log_types(config.log_type, keyword, value)
        elif name == "shared_strategy":
            value = shared_strategies(config.shared_strategy, keyword, value)
        elif name == "durability_topic":
            value = durability_topics(config.durability_topic, keyword, value)
        elif name == "stream":
            from mosq.config.streams import streams_with  # imported here so that the start stays fast

            value = streams_with(config.stream, str(value))
        elif name == "stream_events":
            from mosq.config.streams import events_of

            assert isinstance(value, tuple)
            value = () if events_of(value) is None else (" ".join(value),)
        elif name == "log_dest":
            value, warning = log_dests(config.log_dest, keyword, str(value))
            if warning:
                self._warn(f"{warning} ({origin}).")
        elif option.once:
            self._once(option, keyword, config.origins, origin)
        setattr(config, name, value)
        config.origins[name] = origin

    def _take_security(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        config, name = self.config, option.name
        self.security_seen = True
        if name == "psk_file" and self.current is not None and self.current.certfile:
            raise ValueError("Cannot use both certificate and psk encryption in a single listener. Expected one of "
                             "them.")
        if config.per_listener_settings:
            assert self.current is not None
            if option.once:
                self._once(option, keyword, self.current.origins, origin)
            self.current.security[name] = value
            self.current.origins[name] = origin
        else:
            if option.once:
                self._once(option, keyword, config.origins, origin)
            setattr(config, name, value)
            config.origins[name] = origin

    def _once(self, option: Option, keyword: str, origins: dict[str, Origin], origin: Origin) -> None:
        first = origins.get(option.name)
        if first is not None and origin.file not in OVERRIDES:
            raise ValueError(f"Duplicate '{option.label or keyword}' value in configuration. Expected it once; the "
                             f"first is at {first}.")

    def _take_listener_option(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        if self.current is None:
            assert option.scope == LISTENER_OR_DEFAULT
            self.current = self._default_listener(keyword, origin)
        listener = self.current
        if option.name in TLS_FILES and listener.psk_hint:
            raise ValueError("Cannot use both certificate and psk encryption in a single listener. Expected one of "
                             "them.")
        if option.name == "http_dir" and not os.path.exists(str(value)):
            raise ValueError(f"Unable to open http_dir '{str(value)[:SHOWN_MAX]}'. Expected an existing folder.")
        if option.name == "accept_protocol_versions":
            value, unknown = versions(keyword, value)
            if unknown:
                self._warn(f"'{keyword}' ({origin}): '{unknown[0]}' is no version and is ignored; expected 3, 4, 5.")
        if option.once:
            self._once(option, keyword, listener.origins, origin)
        setattr(listener, option.name, value)
        listener.origins[option.name] = origin

    def _default_listener(self, keyword: str, origin: Origin) -> Listener:
        if self.default is None:
            self.default = Listener(DEFAULT_PORT, origin=origin)
            self.config.listeners.append(self.default)
            self._note(INFORMATION, f"Creating default listener due to '{keyword}' option.")
            self._note(INFORMATION, f"It is best practice to define a 'listener' first. Using the '{keyword}' option "
                                    "without a listener will be disabled in the future.")
        return self.default

    def _take_default_listener(self, option: Option, value: Value, origin: Origin) -> None:
        self.current = listener = self._default_listener(option.name, origin)
        if option.name == "port":
            assert isinstance(value, int)
            if self.default_port is not None:
                self._warn(f"Default listener port specified multiple times. Only the latest will be used ({origin}).")
            listener.port = self.default_port = value
        else:
            self._once(option, option.name, listener.origins, origin)
            listener.host = str(value)
        listener.origins[option.name] = origin

    def _take_plugin(self, option: Option, keyword: str, path: str, origin: Origin) -> None:
        config = self.config
        of_listener = option.name == "plugin" and config.per_listener_settings
        self.security_seen = True
        self.plugin = Plugin(path, None, "listener" if of_listener else "global", origin)
        if of_listener:
            assert self.current is not None
            self.current.plugins.append(self.plugin)
        else:
            config.plugins.append(self.plugin)
        config.origins[option.name] = origin

    def _take_dynamic_security(self, option: Option, keyword: str, path: str, origin: Origin) -> None:
        """Apply the option like `plugin dynamic-security` with its file."""
        if not path:
            raise ValueError(empty(option, keyword))
        self.plugin = Plugin(DYNAMIC_SECURITY, None, "global", origin)
        self.plugin.options.append(("config_file", path))
        self.security_seen = True
        self.config.plugins.append(self.plugin)

    def _take_special(self, option: Option, keyword: str, text: str, origin: Origin, main: bool) -> None:
        config, name = self.config, option.name
        if name == "dynamic_security":
            self._take_dynamic_security(option, keyword, text, origin)
        elif name == "listener":
            self.current, ignored = listener_line(text, origin)
            config.listeners.append(self.current)
            if ignored:
                self._warn(f"'{keyword}' ({origin}): '{ignored}' behind the address is ignored.")
        elif name == "connection":
            self._take_connection(keyword, text, origin)
        elif name == "plugin_load":
            self.plugin = named_plugin(text, keyword, config.named_plugins, origin)
            assert self.plugin.name is not None
            config.named_plugins[self.plugin.name] = self.plugin
        elif name == "plugin_use":
            assert self.current is not None
            if text not in config.named_plugins:
                if not text:
                    raise ValueError(empty(option, keyword))
                raise ValueError(f"Plugin '{text[:SHOWN_MAX]}' not previously loaded. Expected a line "
                                 f"`plugin_load {text[:SHOWN_MAX]} PATH` above it.")
            self.plugin = config.named_plugins[text]
            self.current.plugins.append(self.plugin)
            self.current.origins[name] = origin
        elif name in REPEATED_OF_LISTENER:
            assert self.current is not None
            if not text:
                raise ValueError(empty(option, keyword))
            most, read = REPEATED_OF_LISTENER[name]
            earlier = getattr(self.current, name)
            if len(earlier) == most:
                raise ValueError(f"Too many '{keyword}' lines. Expected at most {most} for a listener.")
            setattr(self.current, name, (*earlier, read(keyword, text)))
            self.current.origins[name] = origin
        else:
            self._include(text, origin, main)

    def _take_connection(self, keyword: str, text: str, origin: Origin) -> None:
        words = text.split()        # words after the name are ignored, like a comment
        if not words:
            raise ValueError(empty(BY_KEYWORD["connection"], keyword))
        if words[0] in self.bridge_names:
            raise ValueError(f"Duplicate bridge name '{words[0][:SHOWN_MAX]}'. Expected another name.")
        self.bridge_names.add(words[0])
        self.bridge = Bridge(words[0], origin)
        self.config.bridges.append(self.bridge)

    def _include(self, folder: str, origin: Origin, main: bool) -> None:
        if not main:
            raise ValueError("The include_dir option is only valid in the main configuration file. Expected it there.")
        if not folder:
            raise ValueError(empty(BY_KEYWORD["include_dir"], "include_dir"))
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".conf") and name != ".conf"]
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"Unable to open include_dir '{folder}'. Expected a folder that can be read: {reason}.",
                              origin) from None
        self.config.sources.append((folder, origin))
        for name in sorted(names, key=_include_order):
            path = os.path.join(folder, name)
            self._note(INFORMATION, f"Loading config file '{path}'")
            self.read_file(path, main=False, included_at=origin)


def _include_order(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((letter.lower(), letter) for letter in name)   # A a B b, digits first
