"""`mosq init`: asks for what it needs, or takes it from flags, and writes a first configuration."""

import os
import secrets
import socket
import sys

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.cli.init_files import Wanted

EXIT_OK, EXIT_FAILED = 0, 1
LOCAL = "127.0.0.1"
PASSWORD_BYTES = 12

EPILOG = """\b
Examples:
  mosq init                                       ask, and write into ./mosq
  sudo mosq init /etc/mosq --user ann --host broker.example      for the service of the Debian package
  mosq init test --local --no-tls --anonymous -y  for a first try on this machine
  mosq init lab --user ann --user ben --host broker.local --host 192.168.1.10 -y

\b
With TLS it makes an own CA (certs/ca.crt, for the clients) and a certificate of the broker. A certificate
of a public authority, renewal and certificates of clients: docs/tls.md.

\b
Exit status:
  0  written, and accepted by the broker's own check
  1  not written; nothing was changed
  3  error in the command line
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", default="mosq", type=click.Path(file_okay=False))
@click.option("--user", "users", metavar="NAME", multiple=True,
              help="A user; may be repeated. The password is prompted for; without a terminal it is random and "
                   "printed.")
@click.option("--anonymous", is_flag=True, help="No users: clients connect without a password.")
@click.option("--local", is_flag=True, help="Accept clients of this machine only.")
@click.option("-p", "--port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Port of the listener.  [default: 8883 with TLS, 1883 without]")
@click.option("--tls/--no-tls", "tls", default=None, help="Encrypt with TLS, with an own CA.")
@click.option("--host", "names", metavar="NAME", multiple=True,
              help="Name or address by which clients reach this machine, for the certificate; may be repeated.")
@click.option("--persistence/--no-persistence", "persistence", default=None, help="Keep sessions and messages on disk.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: take the defaults.")
def init(                               # parameters: one for each option of the command
        folder: str, users: tuple[str, ...], anonymous: bool, local: bool, port: int | None, tls: bool | None,
        names: tuple[str, ...], persistence: bool | None, yes: bool) -> int:
    """Write a commented configuration with users and TLS certificates into FOLDER."""
    from mosq.cli.init_files import InitError, Wanted, is_name, refuse_existing, refuse_package, write

    if anonymous and users:
        raise click.UsageError("--anonymous and --user exclude each other. Expected one of them.")
    for name in names:
        if not is_name(name):
            raise click.UsageError(f"{name[:80]!r} is not the name of a host. Expected a name or an address.")
    asks = not yes and sys.stdin.isatty()
    wanted = Wanted(folder)
    if wanted.service and persistence is not None:
        raise click.UsageError(f"{wanted.service} has the options for storage. Expected no --persistence and no "
                               "--no-persistence.")
    conf = wanted.service or os.path.join(wanted.folder, wanted.conf)
    try:
        refuse_existing(os.path.join(wanted.folder, wanted.conf))       # before the user answers questions
        refuse_package(wanted.folder)
        generated = _users(wanted, users, anonymous, asks)
        is_local = local or (asks and not click.confirm("Accept clients of other machines?", default=True))
        wanted.address = LOCAL if is_local else None
        with_tls = tls if tls is not None else (click.confirm("Encrypt with TLS (with an own CA)?", default=True)
                                                if asks else bool(names) or not is_local)
        if with_tls:
            wanted.names = _names(names, asks)
        wanted.port = port or (8883 if with_tls else 1883)
        if not wanted.service:
            wanted.is_persistent = persistence if persistence is not None else (
                click.confirm("Keep sessions and messages on disk?", default=True) if asks else True)
        if not wanted.users and wanted.address is None:
            click.echo("Warning: every client on the network can connect without a password.", err=True)
        write(wanted, click.echo)
    except InitError as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nInterrupted: nothing is written.", err=True)
        return EXIT_FAILED
    for user, password in generated.items():
        click.echo(f"Password of {user}: {password}   (shown only now)")
    for problem in problems(conf):
        click.echo(f"Warning: {problem}", err=True)
    _show_next(wanted, conf)
    return EXIT_OK


def problems(conf: str) -> list[str]:
    """Return what a broker with this configuration could not use, such as a folder without rights."""
    from mosq.config.errors import ConfigError
    from mosq.config.files import file_problems
    from mosq.config.parser import load_config
    from mosq.server.process import Acting
    from mosq.server.unkept import unkept_line, unusable
    from mosq.tools.doctor.rights import broker_account

    try:
        config = load_config(conf)
        with Acting(broker_account(config)):
            unkept = unusable(config)
    except ConfigError as error:
        return [str(error)]
    return [*([] if unkept is None else [unkept_line(config, unkept)]), *file_problems(config)]


def _users(wanted: "Wanted", users: tuple[str, ...], anonymous: bool, asks: bool) -> dict[str, str]:
    """Fill in the users and their passwords; return those that were made here."""
    from mosq.tools.ctl.spec import BadInputError
    from mosq.tools.ctl.terminal import new_secret

    generated: dict[str, str] = {}
    if not users and not anonymous:
        if not asks:
            users = ("admin",)
        elif click.confirm("Shall clients log in with a user name and a password?", default=True):
            users = (click.prompt("User name", default="admin"),)
    for name in users:
        try:
            password = new_secret(name) if asks else ""
        except BadInputError as error:
            raise click.UsageError(str(error)) from None
        if not password:
            password = generated[name] = secrets.token_urlsafe(PASSWORD_BYTES)
        wanted.users[name] = password.encode()
    return generated


def _names(names: tuple[str, ...], asks: bool) -> list[str]:
    """Return the names for the certificate: always those of this machine, too."""
    from mosq.cli.init_files import InitError, is_name

    found = list(names)
    own = socket.gethostname()
    if not found and asks:
        text = click.prompt("Names and addresses by which clients reach this machine", default=own)
        found = text.replace(",", " ").split()
        for name in found:
            if not is_name(name):
                raise InitError(f"{name[:80]!r} is not the name of a host. Expected a name or an address.")
    if not found and is_name(own):
        found = [own]
    return list(dict.fromkeys([*found, "localhost", LOCAL]))


def _show_next(wanted: "Wanted", conf: str) -> None:
    login = f" -u {next(iter(wanted.users))} -P PASSWORD" if wanted.users else ""
    host = wanted.names[0] if wanted.names else "localhost"
    tls = f" -h {host} --cafile {wanted.folder}/certs/ca.crt" if wanted.names else ""
    start = f"Start the broker:   mosq -c {conf}"
    if wanted.service:
        from mosq.cli.init_files import SERVICES

        click.echo(f"Written: {os.path.join(wanted.folder, wanted.conf)}, which {wanted.service} includes.")
        start = f"Reload the broker:  systemctl reload {SERVICES[os.path.basename(conf)]}"
    click.echo(f"\n{start}\n"
               f"Subscribe:          mosq sub -p {wanted.port}{tls}{login} -v -t 'hello/#'\n"
               f"Publish:            mosq pub -p {wanted.port}{tls}{login} -t hello/world -m hi")
