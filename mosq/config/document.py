"""Generate docs/options.md from the option table: `python -m mosq.config.document > docs/options.md`."""

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

This page lists every option of the configuration file. The command `python -m mosq.config.document` generates it from
the table with which mosq reads the file, and a test checks that the two agree. mosq knows every option of Mosquitto;
options that only mosq knows have a section of their own.

## Example

```
listener 1883 127.0.0.1
allow_anonymous true        # no password needed on this machine

listener 8883
certfile /etc/mosq/broker.crt
keyfile /etc/mosq/broker.key

password_file /etc/mosq/passwd
persistence true
persistence_location /var/lib/mosq
```

`mosq -c FILE --test-config` checks a file without starting the broker.

## Rules of the file

- Each line has one option and its value.
- A line that begins with `#` is a comment. Text behind `#` is also a comment after a value that is one word
  (`allow_anonymous true  # why`). In texts and paths, `#` belongs to the value.
- Order matters: an option belongs to the `listener`, `connection` or plugin line above it.

The column *where* says where an option may be written:

| where | meaning |
|---|---|
| global | anywhere; applies to the broker |
| listener | after a `listener` (or `port`) line |
| listener\\* | as listener; before any listener line, the option creates the default listener on port 1883 |
| security | anywhere; applies to all listeners. With `per_listener_settings true`: applies to the listener above it |
| bridge | in a `connection` block |
| plugin | after a plugin line |

The column *reload* says what SIGHUP does with a changed value:

| reload | meaning |
|---|---|
| live | the new value applies at once |
| new connections | the new value applies to new connections; existing connections are unchanged |
| listener restart | the listener closes and opens again; its clients must connect again |
| restart | the new value applies after a restart of the broker; the log reports this |
"""
SCOPES = {GLOBAL: "global", LISTENER: "listener", LISTENER_ONLY: "listener", LISTENER_OR_DEFAULT: "listener\\*",
          SECURITY: "security", BRIDGE: "bridge", PLUGIN: "plugin"}
COLUMNS = "| option | value | default | where | reload | meaning |\n|---|---|---|---|---|---|\n"
SPECIAL = {"include_dir": "a folder", "listener": "PORT [ADDRESS], or 0 PATH", "connection": "a name",
           "plugin_load": "NAME PATH", "plugin_use": "a name", "websockets_origin": "an origin",
           "websockets_trusted_proxy": "an address, a network or unix",
           "address": "HOST[:PORT] ...", "topic": "PATTERN [...]", "restart_timeout": "seconds",
           "bridge_tcp_keepalive": "three numbers", "dynamic_security": "a path"}


def page() -> str:
    """Return the text of docs/options.md."""
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
