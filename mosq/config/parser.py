"""Reads a `mosquitto.conf`: one option per line, in the order of the file, since order has a meaning (an option
belongs to the listener above it). Stops at the first mistake. Opens only the files it is pointed at, and never writes:
a check must not harm.

Blanks and tabs count the same, also before an option: all that Mosquitto takes is taken, and a little more.
"""

import os

from mosq.config.errors import ConfigError, Origin
from mosq.config.model import SECURITY_NAMES, Config, Listener
from mosq.config.options import (
    BRIDGE,
    BY_KEYWORD,
    LISTENER,
    LISTENER_OR_DEFAULT,
    LOG_TYPES,
    SECURITY,
    SHARED_LINES_MAX,
    SHARED_STRATEGIES,
    Option,
    find_option,
)
from mosq.config.values import Value, parse_value, words_before_comment

COMMAND_LINE = "<command line>"
PORTS_MAX = 10          # -p on the command line
LINE_BYTES_MAX = 1 << 20
DEFAULT_PORT = 1883
BLANKS = b" \t\r\n\v\f"


def load_config(path: str | None = None, ports: tuple[int, ...] = (), overrides: tuple[str, ...] = ()) -> Config:
    """The configuration of a file (None: defaults), with the ports and the lines of options that the command line
    gives. Raises ConfigError."""
    config = Config()
    reader = Reader(config)
    if path is not None:
        config.file = path
        reader.read_file(path, main=True)
        reader.finish()
    for line in overrides:
        try:
            reader.read_line(line.encode("utf-8", "surrogateescape"), Origin(COMMAND_LINE, 1), main=True)
        except ValueError as error:
            raise ConfigError(f"{error} (On the command line: --{line.replace('_', '-')})") from None
    if config.listeners:
        if ports:
            config.warnings.append("The ports of the command line (-p) are ignored: the configuration has a listener.")
    else:
        _listen_locally(config, ports or (DEFAULT_PORT,))
    check_listeners(config)
    warn_of_closed_doors(config)
    return config


def warn_of_closed_doors(config: Config) -> None:
    for listener in config.listeners:
        if not config.allows_anonymous(listener):
            where = listener.path or f"port {listener.port}"
            config.warnings.append(
                f"The listener on {where} lets nobody in: `allow_anonymous` is false there (the default with a "
                f"listener), and "
                "this version of mosq has no password_file yet. Write `allow_anonymous true` to let clients in "
                "without a password.")


def _listen_locally(config: Config, ports: tuple[int, ...]) -> None:
    if len(ports) > PORTS_MAX:
        raise ConfigError(f"Only {PORTS_MAX} ports can be given with -p; expected fewer than {len(ports)}.")
    config.local_only = True
    for port in ports:
        config.listeners.append(Listener(port, "127.0.0.1"))
        config.listeners.append(Listener(port, "::1"))


def check_listeners(config: Config) -> None:
    # The data plane has one acl and one rule on empty client ids: settings that differ by listener would be silently
    # weaker for one of them.
    for name in ("acl_file", "allow_zero_length_clientid"):
        values = {listener.security.get(name, getattr(config, name)) for listener in config.listeners}
        if len(values) > 1:
            origin = next((x.origin for x in config.listeners if name in x.security), None)
            raise ConfigError(f"'{name}' differs between listeners, which this version of mosq does not have yet; "
                              f"expected the same {name} for every listener.", origin)
        if config.listeners and config.per_listener_settings:
            setattr(config, name, values.pop())


class Reader:
    """The state of reading: which listener the next option belongs to."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.current: Listener | None = None            # of the file being read
        self.default: Listener | None = None            # of `port`, `bind_address` and options before any listener
        self.default_port: int | None = None
        self.warned: set[str] = set()

    def read_file(self, path: str, main: bool, included_at: Origin | None = None) -> None:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"Unable to open config file {path}: {reason}.", included_at) from None
        self.read_content(path, content, main)

    def read_content(self, path: str, content: bytes, main: bool) -> None:
        outer, self.current = self.current, None        # a listener's options do not cross files
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, line in enumerate(lines, start=1):
            line = line.strip(BLANKS)
            if line and not line.startswith(b"#"):
                origin = Origin(path, number)
                try:
                    self.read_line(line, origin, main)
                except ValueError as error:
                    raise ConfigError(str(error), origin) from None
        self.current = outer

    def read_line(self, line: bytes, origin: Origin, main: bool) -> None:
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"A line of {len(line)} bytes; expected at most {LINE_BYTES_MAX}.")
        first, *rest = line.split(None, 1)
        keyword = first.decode("utf-8", "backslashreplace")
        option = find_option(keyword)
        if option is None:
            raise ValueError(_unknown(keyword))
        if option.scope == BRIDGE:
            raise ValueError(f"The '{keyword}' option requires a bridge to be defined first, by `connection NAME`; "
                             "bridges are not in this version of mosq.")
        value = parse_value(option, keyword, rest[0] if rest else b"")
        if option.kind == "special":
            self._take_special(option, str(value), origin, main)
        elif option.absent is not None:
            if option.scope == LISTENER and self.current is None:
                raise ValueError(_needs_listener(keyword))
            self._take_absent(option, keyword, value, origin)
        elif option.name in ("port", "bind_address"):
            self._take_default_listener(option, value, origin)
        elif option.scope in (LISTENER, LISTENER_OR_DEFAULT):
            self._take_listener_option(option, keyword, value, origin)
        else:
            self._take_global(option, keyword, value, origin)

    # ---- each kind of option

    def _take_absent(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        assert option.absent is not None
        if option.default is not None and value == option.default:
            return                                      # asks for nothing
        shown = keyword if option.kind in ("string", "path", "special") else f"{keyword} {str(value).lower()}"
        if option.absent.effect == "refuse":
            raise ValueError(f"'{shown}' is not in this version of mosq; {option.absent.instead}.")
        if option.name not in self.warned:
            self.warned.add(option.name)
            meaning = option.absent.instead or "it has no effect"
            self.config.warnings.append(f"'{shown}' ({origin}) is not in this version of mosq: {meaning}.")

    def _take_global(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        config = self.config
        if option.name == "per_listener_settings":
            if value and any(name in config.origins for name in SECURITY_NAMES):
                raise ValueError("per_listener_settings must be set before any other security settings; "
                                 "expected it on the first line.")
        elif option.name == "log_type":
            value = config.log_type + _log_types(keyword, value)
        elif option.name == "shared_strategy":
            value = _shared_strategies(config.shared_strategy, keyword, value)
        elif option.name == "log_dest":
            value = config.log_dest + self._log_dests(keyword, value, origin)
        elif option.scope == SECURITY and config.per_listener_settings:
            self._listener_for(option, keyword, origin).security[option.name] = value
            config.origins[option.name] = origin
            return
        setattr(config, option.name, value)
        config.origins[option.name] = origin

    def _log_dests(self, keyword: str, value: Value, origin: Origin) -> tuple[str, ...]:
        assert isinstance(value, tuple)
        option = BY_KEYWORD["log_dest"]
        kind = value[0]
        if kind == "file" and len(value) == 1:
            raise ValueError(f"Empty '{keyword} file' value in configuration; expected a path after `file`.")
        if kind != "file" and (kind not in option.choices or len(value) > 1):
            raise ValueError(f"Invalid '{keyword}' value ({' '.join(value)}); expected one of "
                             f"{', '.join(option.choices)}.")
        if kind == "file":
            return (f"file {' '.join(value[1:])}",)
        if kind in ("none", "stdout", "stderr", "syslog", "topic"):
            return (kind,)
        self.config.warnings.append(f"'{keyword} {' '.join(value)}' ({origin}) is not in this version of mosq: "
                                    "the log goes to stderr.")
        return ("stderr",)

    def _take_listener_option(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        listener = self._listener_for(option, keyword, origin)
        if option.name == "accept_protocol_versions":
            value = _versions(keyword, value, option)
        setattr(listener, option.name, value)

    def _listener_for(self, option: Option, keyword: str, origin: Origin) -> Listener:
        if self.current is not None:
            return self.current
        if option.scope == LISTENER:
            raise ValueError(_needs_listener(keyword))
        return self._default_listener(origin)

    def _default_listener(self, origin: Origin) -> Listener:
        if self.default is None:
            self.default = Listener(DEFAULT_PORT, origin=origin)
            self.config.listeners.append(self.default)
        return self.default

    def _take_default_listener(self, option: Option, value: Value, origin: Origin) -> None:
        listener = self._default_listener(origin)
        if option.name == "port":
            assert isinstance(value, int)
            listener.port = self.default_port = value
        else:
            listener.host = str(value)

    def _take_special(self, option: Option, text: str, origin: Origin, main: bool) -> None:
        if option.name == "listener":
            self.current = _listener(text, origin)
            self.config.listeners.append(self.current)
        elif option.name == "include_dir":
            if main:
                self._include(text, origin)
            else:
                self.config.warnings.append(f"'include_dir' ({origin}) is read in the main file only; it has no "
                                            f"effect here.")
        else:
            self._take_absent(option, option.name, text, origin)

    def _include(self, folder: str, origin: Origin) -> None:
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".conf")]
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"Unable to open include_dir '{folder}': {reason}; expected a folder.", origin) from None
        for name in sorted(names, key=_include_order):
            self.read_file(os.path.join(folder, name), main=False, included_at=origin)

    def finish(self) -> None:
        """What only the whole file can tell."""
        seen: dict[tuple[int, str | None, str | None], Listener] = {}
        for listener in self.config.listeners:
            key = (listener.port, listener.host, listener.path)
            if key in seen and seen[key].socket_domain == listener.socket_domain:
                where = listener.path or f"{listener.host or '*'}:{listener.port}"
                raise ConfigError(f"The listener {where} is there twice (first at {seen[key].origin}); "
                                  "expected each port and address once.", listener.origin)
            seen[key] = listener


def _needs_listener(keyword: str) -> str:
    return f"The '{keyword}' option requires a listener to be defined first; expected a line `listener PORT` above it."


def _unknown(keyword: str) -> str:
    text = f"Unknown configuration variable '{keyword[:100]}'."
    if "=" in keyword:
        name, _, value = keyword.partition("=")
        if find_option(name):
            return f"{text} There is no '=' in this file; write `{name} {value}`."
    from difflib import get_close_matches  # slow to load, and needed to say goodbye only

    near = get_close_matches(keyword[:100].lower(), list(BY_KEYWORD), n=1, cutoff=0.7)
    return f"{text} Did you mean '{near[0]}'?" if near else f"{text} Expected an option of mosquitto.conf."


def _include_order(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((letter.lower(), letter) for letter in name)   # A a B b, digits first


def _log_types(keyword: str, value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    for word in value:
        if word not in LOG_TYPES and word not in ("all", "none"):
            raise ValueError(f"Invalid '{keyword}' value ({word[:40]}); expected {BY_KEYWORD['log_type'].expected()}.")
    return value


def _shared_strategies(before: tuple[str, ...], keyword: str, value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    strategy, *group = value
    shown = " ".join(value)[:80]
    if strategy not in SHARED_STRATEGIES:
        raise ValueError(f"Invalid '{keyword}' value ({shown}); expected one of {', '.join(SHARED_STRATEGIES)}, and "
                         f"perhaps the name of a group after it.")
    if len(group) > 1 or any(c in name for name in group for c in "/+#"):
        raise ValueError(f"Invalid '{keyword}' value ({shown}); expected after {strategy} nothing, or one name of a "
                         "group: no blanks, no / + #.")
    if len(before) == SHARED_LINES_MAX:
        raise ValueError(f"Too many '{keyword}' lines; expected at most {SHARED_LINES_MAX}.")
    return (*before, " ".join(value))


def _versions(keyword: str, value: Value, option: Option) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    versions = tuple(v for v in ",".join(value).split(",") if v)
    for version in versions or (",",):
        if version not in option.choices:
            raise ValueError(f"Invalid '{keyword}' value ({version[:40]}); expected {option.expected()}, "
                             "separated by commas.")
    return versions


def _listener(text: str, origin: Origin) -> Listener:
    number, *more = text.split(None, 1)
    rest = more[0] if more else ""
    if not number.isascii() or not number.isdigit() or len(number) > 5 or int(number) > 65535:
        raise ValueError(f"Invalid 'listener' value ({number[:40]}); expected a port from 1 to 65535 and perhaps an "
                         "address, or 0 and the path of a unix socket.")
    port = int(number)
    if port == 0:
        if not rest or rest.startswith("#"):
            raise ValueError("A listener with port 0 must provide a Unix socket path; expected `listener 0 /PATH`.")
        return Listener(0, path=rest, origin=origin)
    words = words_before_comment(rest)
    if len(words) > 1:
        raise ValueError(f"Invalid 'listener' value ({text[:80]}); expected a port and one address.")
    return Listener(port, words[0] if words else None, origin=origin)
