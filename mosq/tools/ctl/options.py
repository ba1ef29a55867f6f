"""The options of `mosq ctl`: those of mosquitto_ctrl, on the command line and in its options file. As its manual says,
the command line overrides the file.

  $XDG_CONFIG_HOME/mosquitto_ctrl, else ~/.config/mosquitto_ctrl; or -o FILE      lines `-option value`, `#` comments
"""

import os

import click
from click.core import ParameterSource

from mosq.tools.ctl.connection import LEVELS, Connection, ConnectionProblemError
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Command = Callable[..., Any]

FILE_NAME = "mosquitto_ctrl"
TLS_FILES = ("cafile", "capath", "certfile", "keyfile")
PLAIN = ("port", "client_id", "username", "password", "qos", "insecure", "tls_version", "ciphers", "alpn", "psk",
         "psk_identity", "proxy", "debug")


def connection_options(command: "Command") -> "Command":
    """Add the options of a connection to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def session_options(command: "Command") -> "Command":
    """Add the options of `mosq trace` and `mosq top`, which stay connected."""
    for option in reversed((*CONNECTION_OPTIONS, URL_OPTION, PASSWORD_OPTION, LEVEL_OPTION)):
        command = option(command)
    return command


CONNECTION_OPTIONS = (                   # shared with `mosq pub` and `mosq sub`
    click.option("-A", "bind", metavar="ADDRESS", help="Connect from this local address."),
    click.option("--cafile", metavar="FILE", help="Encrypt with TLS, and trust the certificates in this file."),
    click.option("--capath", metavar="DIR", help="Encrypt with TLS, and trust the certificates in this folder."),
    click.option("--cert", "certfile", metavar="FILE", help="Certificate of this client."),
    click.option("--ciphers", metavar="LIST", help="Ciphers for TLS up to 1.2."),
    click.option("-d", "--debug", is_flag=True, help="Print all packets."),
    click.option("-h", "--host", metavar="HOST", help="Host name or address of the broker.  [default: localhost]"),
    click.option("-i", "--id", "client_id", metavar="ID", help="Client id of this connection."),
    click.option("--insecure", is_flag=True, help="Do not check that the certificate belongs to the host."),
    click.option("--key", "keyfile", metavar="FILE", help="Private key of --cert."),
    click.option("--keyform", metavar="pem", help="Format of the key; only pem."),
    click.option("-o", "options_file", metavar="FILE", help="Read options from this file, one per line."),
    click.option("-p", "--port", type=click.IntRange(0, 65535), metavar="PORT",
                 help="Port of the broker.  [default: 1883, with TLS 8883]"),
    click.option("--proxy", metavar="URL", help="Connect through a SOCKS5 proxy, socks5h://HOST[:PORT]."),
    click.option("--psk", metavar="KEY", help="Encrypt with TLS-PSK and this key, in hexadecimal."),
    click.option("--psk-identity", metavar="NAME", help="Identity that belongs to --psk."),
    click.option("--quiet", is_flag=True, help="Print no warnings."),
    click.option("--tls-alpn", "alpn", metavar="PROTOCOL", help="Protocol name for ALPN."),
    click.option("--tls-engine", metavar="ENGINE", hidden=True),
    click.option("--tls-engine-kpass-sha1", metavar="HASH", hidden=True),
    click.option("--tls-use-os-certs", "tls", is_flag=True,
                 help="Encrypt with TLS, and trust the system's authorities."),
    click.option("--tls-version", metavar="tlsv1.2|tlsv1.3", help="Use only this TLS version."),
    click.option("-u", "--username", metavar="USER", help="User name for the login."),
    click.option("--unix", metavar="PATH", help="Connect to this Unix socket."),
)
URL_OPTION = click.option("-L", "--url", metavar="URL",
                          help="Broker as mqtt, mqtts, ws or wss://[USER[:PASSWORD]@]HOST[:PORT].")
PASSWORD_OPTION = click.option("-P", "--pw", "password", metavar="PASSWORD",
                               help="Password of the user; without it, -u prompts for one.")
LEVEL_OPTION = click.option("-V", "--protocol-version", "level", metavar="5|311|31",
                            help="MQTT version.  [default: 5]")
OPTIONS = (
    *CONNECTION_OPTIONS,
    click.option("-f", "data_file", metavar="FILE", help="With `dynsec setClientPassword`: change this file of "
                                                         "the plugin, while no broker uses it."),
    URL_OPTION,
    PASSWORD_OPTION,
    click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, metavar="QOS",
                 help="QoS of the commands.  [default: 1]"),
    LEVEL_OPTION,
    click.option("-v", "--verbose", is_flag=True, hidden=True),
    click.option("--json", "as_json", is_flag=True, help="Print answers as one line of JSON."),
    click.option("--no-colour", is_flag=True, hidden=True),
)


@click.command(add_help_option=False)
@connection_options
def _of_a_file(**given: "Any") -> None:
    """Parses the options of a file; does nothing else."""


def merged(context: click.Context, given: "dict[str, Any]") -> "dict[str, Any]":
    """Return the options: those of the command line, and for the others those of the options file. Raises
    click.UsageError."""
    path = given["options_file"] or default_file()
    lines = read_lines(path, must_be_there=given["options_file"] is not None)
    from_file: dict[str, Any] = {}
    for number, arguments in lines:
        try:
            one = _of_a_file.make_context(FILE_NAME, arguments)
        except click.UsageError as error:
            raise click.UsageError(f"{path}, line {number}: {error.format_message()}") from None
        from_file |= {name: value for name, value in one.params.items()
                      if one.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    from_command_line = {name: value for name, value in given.items()
                         if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if from_command_line.keys() & {"host", "unix", "url"}:  # the file's address belongs to another broker
        from_file = {name: value for name, value in from_file.items() if name not in ("host", "unix", "url", "port")}
    return {**given, **from_file, **from_command_line}


def default_file(name: str = FILE_NAME) -> str | None:
    """Return the path of the options file of a program; None without a home folder."""
    folder = os.environ.get("XDG_CONFIG_HOME") or (os.environ["HOME"] + "/.config" if os.environ.get("HOME") else None)
    return f"{folder}/{name}" if folder else None


def read_lines(path: str | None, must_be_there: bool) -> list[tuple[int, list[str]]]:
    """Return (line number, [option, value]) of each line."""
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as error:
        if must_be_there:
            raise click.UsageError(f"Unable to read the options file {path}: {error.strerror}.") from None
        return []
    return [(number, line.split(None, 1)) for number, line in enumerate(map(str.strip, lines), 1)
            if line and not line.startswith("#")]


def connection_of(given: "dict[str, Any]") -> Connection:
    """Return the connection that the options describe. Raises click.UsageError."""
    made = Connection()
    try:
        _refuse(given)
        if given["url"] is not None:
            made.take_url(given["url"])
        if given["host"] is not None:
            made.host = given["host"]
        for name in PLAIN:
            if given[name] is not None:
                setattr(made, name, given[name])
        made.bind = given["bind"] or ""
        made.tls = made.tls or given["tls"]
        made.tls_files = {name: given[name] for name in TLS_FILES if given[name] is not None}
        if given["unix"] is not None:
            made.transport, made.host, made.tls = "unix", given["unix"], False
        if given["level"] is not None:
            if given["level"] not in LEVELS:
                raise ConnectionProblemError(f"Invalid protocol version {given['level']!r}; expected 5, 311 or 31.")
            made.level = LEVELS[given["level"]]
        made.check()
    except ConnectionProblemError as error:
        raise click.UsageError(str(error)) from None
    return made


def _refuse(given: "dict[str, Any]") -> None:
    if given["tls_engine"] is not None or given["tls_engine_kpass_sha1"] is not None:
        raise ConnectionProblemError("--tls-engine is not supported: OpenSSL no longer supports engines. Expected "
                                     "--key with a PEM file.")
    if given["keyform"] not in (None, "pem"):
        raise ConnectionProblemError("Problem setting key form, it must be 'pem'.")


def version_option(command: "Command") -> "Command":
    return click.version_option(VERSION, message="mosq ctl version %(version)s")(command)
