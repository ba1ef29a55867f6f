"""docs/options.md, made of the table of options: `python -m mosq.config.document > docs/options.md`."""

from mosq.config.options import (
    BRIDGE,
    GLOBAL,
    LISTENER,
    LISTENER_ONLY,
    LISTENER_OR_DEFAULT,
    PLUGIN,
    SECTIONS,
    SECURITY,
    Option,
)

HEAD = """\
# Options of mosquitto.conf

This page is made of the table from which mosq reads the file (`python -m mosq.config.document`); a test sees to it that
the two agree. What Mosquitto knows, mosq knows; options of mosq itself have a section of their own.

One option a line, then its value. A line that begins with `#` is a comment; so is what follows a value that is one word
(`allow_anonymous true  # why`), while in texts and paths a `#` belongs to the value. Order counts: an option belongs to
the `listener`, `connection` or plugin line above it.

*Where*: **global**, anywhere. **listener**, after a `listener` (or `port`) line. **listener\\***, the same, or before
any: then it makes the default listener, port 1883. **security**, anywhere, for all; under `per_listener_settings true`
for the listener above it. **bridge**, in a `connection` block. **plugin**, after a plugin line.

*Reload*: what `SIGHUP` does with a change. **live**: it counts at once. **new connections**: who is connected stays as
he is. **listener restart**: the listener closes and opens again. **restart**: it waits for a restart of the broker, and
the log says so.
"""
SCOPES = {GLOBAL: "global", LISTENER: "listener", LISTENER_ONLY: "listener", LISTENER_OR_DEFAULT: "listener\\*",
          SECURITY: "security", BRIDGE: "bridge", PLUGIN: "plugin"}
COLUMNS = "| option | value | default | where | reload | meaning |\n|---|---|---|---|---|---|\n"
SPECIAL = {"include_dir": "a folder", "listener": "PORT [ADDRESS], or 0 PATH", "connection": "a name",
           "plugin_load": "NAME PATH", "plugin_use": "a name", "websockets_origin": "an origin",
           "address": "HOST[:PORT] ...", "topic": "see there", "restart_timeout": "seconds",
           "bridge_tcp_keepalive": "three numbers", "dynamic_security": "a path"}


def page() -> str:
    parts = [HEAD]
    for title, options in SECTIONS:
        parts.append(f"\n## {title}\n\n{COLUMNS}")
        parts += [_row(option) for option in options]
    return "".join(parts)


def _row(option: Option) -> str:
    name = f"`{option.name}{'KEY' if option.prefix else ''}`"
    names = ", ".join([name, *(f"`{alias}{'KEY' if option.prefix else ''}`" for alias in option.aliases)])
    cells = (names, _value(option), _default(option), SCOPES[option.scope],
             option.reload.removesuffix(" of the broker"), _meaning(option))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _value(option: Option) -> str:
    if option.kind == "special":
        return SPECIAL[option.name]
    if option.kind == "anything":
        return "anything"
    return option.expected()


def _default(option: Option) -> str:
    value = option.default
    if value in (None, "", ()) or option.kind in ("special", "anything") or option.name == "log_facility":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "never" if option.kind == "duration" else str(value)


def _meaning(option: Option) -> str:
    text = f"{option.help[:1].upper()}{option.help[1:]}."
    if option.ignored:
        text += f" **No effect in this version**: {option.ignored.rstrip('.')}."
    if option.deprecated is not None or option.deprecated_by:
        text += " Deprecated" + (f": write `{option.deprecated_by}`." if option.deprecated_by else " by Mosquitto.")
    return text


if __name__ == "__main__":
    print(page(), end="")
