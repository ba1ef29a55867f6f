"""Parses values that have their own format, one line at a time. Raises ValueError as values.py does."""

from mosq.config.acl import is_filter
from mosq.config.errors import Origin
from mosq.config.model import Listener
from mosq.config.options import (
    BY_KEYWORD,
    DURABILITIES,
    DURABILITY_LINES_MAX,
    LOG_DESTS,
    SHARED_LINES_MAX,
    SHARED_STRATEGIES,
    UINT16_MAX,
    Option,
    find_option,
)
from mosq.config.options.values import SHOWN_MAX, Value, decode, empty, integer, words_before_comment
from mosq.config.plugin import Plugin
from mosq.log_types import LOG_TYPES

LOGGED_NOWHERE = ("dlt", "android")
PLUGIN_KEY_MIN = 3      # characters, in Mosquitto


def listener_line(text: str, origin: Origin) -> tuple[Listener, str]:
    """Return the listener of `PORT [ADDRESS]` or `0 PATH`, and the ignored words after it."""
    words = text.split()
    if not words:
        raise ValueError("Empty 'listener port' value in configuration. Expected a port and perhaps an address, or 0 "
                         "and the path of a unix socket.")
    port = integer(words[0])
    if port is None:
        raise ValueError(f"'listener port' value not a number. Expected a port from 1 to 65535, and not "
                         f"'{words[0][:SHOWN_MAX]}'.")
    if not 0 <= port <= UINT16_MAX:
        raise ValueError(f"Invalid 'port' value ({words[0][:SHOWN_MAX]}). Expected a port from 1 to 65535, or 0 and "
                         "the path of a unix socket.")
    rest = words_before_comment(" ".join(words[1:]))
    if port == 0:
        if not rest:
            raise ValueError("A listener with port 0 must provide a Unix socket path. Expected `listener 0 /PATH`.")
        # only mosq accepts a path with blanks: Mosquitto takes its first word
        path = text.split(None, 1)[1].replace("\t#", " #").partition(" #")[0].rstrip()
        return Listener(0, path=path, origin=origin), ""
    return Listener(port, rest[0] if rest else None, origin=origin), " ".join(rest[1:])[:SHOWN_MAX]


def log_types(before: tuple[str, ...], keyword: str, value: Value) -> tuple[str, ...]:
    """Return all types since the last `none`; each line may name several."""
    assert isinstance(value, tuple)
    types = before
    for word in value:
        if word not in LOG_TYPES and word not in ("all", "none"):
            raise ValueError(f"Invalid '{keyword}' value ({word[:SHOWN_MAX]}). Expected "
                             f"{BY_KEYWORD['log_type'].expected()}.")
        types = (*types, word) if word not in types or word in ("all", "none") else types
    return types[-SHARED_LINES_MAX:]


def log_dests(before: tuple[str, ...], keyword: str, text: str) -> tuple[tuple[str, ...], str]:
    """Return the destinations including this line's, and a warning or ""."""
    kind, *rest = text.split(None, 1)
    if kind == "file":
        path = rest[0].strip() if rest else ""
        if not path:
            raise ValueError('Empty "log_dest file" value in configuration. Expected a path after `file`.')
        if any(dest.startswith("file ") for dest in before):
            raise ValueError('Duplicate "log_dest file" value. Expected one file.')
        return (*_without_none(before), f"file {path}"), ""
    if kind not in LOG_DESTS:
        raise ValueError(f"Invalid '{keyword}' value ({kind[:SHOWN_MAX]}). Expected one of {', '.join(LOG_DESTS)}.")
    if kind in LOGGED_NOWHERE:
        return before, f"'{keyword} {kind}' has no effect: mosq does not log to {kind}. Expected another log_dest"
    if kind == "none":
        return ("none",), ""
    return (*(dest for dest in _without_none(before) if dest != kind), kind), ""


def _without_none(dests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dest for dest in dests if dest != "none")


def shared_strategies(before: tuple[str, ...], keyword: str, value: Value) -> tuple[str, ...]:
    """Return the lines including this one."""
    assert isinstance(value, tuple)
    strategy, *group = value
    shown = " ".join(value)[:SHOWN_MAX]
    if strategy not in SHARED_STRATEGIES:
        raise ValueError(f"Invalid '{keyword}' value ({shown}). Expected one of {', '.join(SHARED_STRATEGIES)}, and "
                         f"perhaps the name of a group after it.")
    if len(group) > 1 or any(c in name for name in group for c in "/+#"):
        raise ValueError(f"Invalid '{keyword}' value ({shown}). Expected after {strategy} nothing, or one name of a "
                         "group: no blanks, no / + #.")
    if len(before) == SHARED_LINES_MAX:
        raise ValueError(f"Too many '{keyword}' lines. Expected at most {SHARED_LINES_MAX}.")
    return (*before, " ".join(value))


def durability_topics(before: tuple[str, ...], keyword: str, value: Value) -> tuple[str, ...]:
    """Return the lines including this one."""
    assert isinstance(value, tuple)
    level, *names = value
    shown = " ".join(value)[:SHOWN_MAX]
    if level not in DURABILITIES or len(names) != 1:
        raise ValueError(f"Invalid '{keyword}' value ({shown}). Expected one of {', '.join(DURABILITIES)}, and a topic "
                         "filter after it, without blanks.")
    if not is_filter(names[0]):
        raise ValueError(f"Invalid '{keyword}' value ({shown}). Expected a topic filter: + alone in its level, # alone "
                         "in the last.")
    if len(before) == DURABILITY_LINES_MAX:
        raise ValueError(f"Too many '{keyword}' lines. Expected at most {DURABILITY_LINES_MAX}.")
    return (*before, f"{level} {names[0]}")


def versions(keyword: str, value: Value) -> tuple[tuple[str, ...], list[str]]:
    """Return the protocol versions, and the unknown words, which Mosquitto ignores. Without any version no client could
    connect, so that is an error."""
    assert isinstance(value, tuple)
    option = BY_KEYWORD["accept_protocol_versions"]
    words = [v for v in ",".join(value).split(",") if v]
    if not words:
        raise ValueError(empty(option, keyword))
    known = tuple(word for word in words if word in option.choices)
    unknown = [word[:SHOWN_MAX] for word in words if word not in option.choices]
    if not known:
        raise ValueError(f"Invalid '{keyword}' value ({unknown[0]}). Expected {option.expected()}, separated by "
                         "commas; this line accepts no client.")
    return known, unknown


def named_plugin(text: str, keyword: str, known: dict[str, Plugin], origin: Origin) -> Plugin:
    """Parse `plugin_load NAME PATH`."""
    name, *path = text.split(None, 1) or [""]
    if not name:
        raise ValueError(f"Empty '{keyword}' value in configuration. Expected `plugin_load NAME PATH`.")
    if name in known:
        raise ValueError(f"Duplicate plugin name '{name[:SHOWN_MAX]}'. Expected another name; the first is at "
                         f"{known[name].origin}.")
    if not path:
        raise ValueError(f"Missing plugin path for plugin name '{name[:SHOWN_MAX]}'. Expected `plugin_load NAME PATH`.")
    return Plugin(path[0], name, "listener", origin)


def plugin_option(plugin: Plugin | None, keyword: str, text: str) -> None:
    """Add `plugin_opt_KEY VALUE` or `auth_opt_KEY VALUE` to the plugin."""
    if plugin is None:
        raise ValueError(f"The '{keyword}' option requires plugin/global_plugin/plugin_load to be defined first. "
                         "Expected such a line above it.")
    key = keyword.removeprefix("auth_opt_").removeprefix("plugin_opt_")
    if len(key) < PLUGIN_KEY_MIN:
        raise ValueError("Invalid 'plugin_opt_' config option. Expected a name of three characters or more after "
                         "plugin_opt_.")
    if not text:
        raise ValueError(f"Empty '{key[:SHOWN_MAX]}' value in configuration. Expected `{keyword[:SHOWN_MAX]} VALUE`.")
    plugin.options.append((key, text))


def plugin_path(option: Option, keyword: str, raw: bytes) -> str:
    """Return the path of a plugin line. Raises ValueError."""
    if not raw:
        raise ValueError(f"Missing plugin path for plugin name '(null)'. Expected `{keyword} PATH`.")
    return decode(option, keyword, raw)


def unknown_keyword(keyword: str) -> str:
    """Return the error text for an unknown option, with a hint if possible."""
    text = f"Unknown configuration variable '{keyword[:100]}'."
    if "=" in keyword:
        name, _, value = keyword.partition("=")
        if find_option(name):
            return f"{text} There is no '=' in this file; write `{name} {value[:SHOWN_MAX]}`."
    if keyword.startswith(("{{", "{%")):
        return f"{text} This is a template. Expected the file that is generated from it."
    from difflib import get_close_matches  # slow to load, and only needed for this error

    near = get_close_matches(keyword[:100].lower(), list(BY_KEYWORD), n=1, cutoff=0.7)
    return f"{text} Did you mean '{near[0]}'?" if near else f"{text} Expected an option of mosquitto.conf."
