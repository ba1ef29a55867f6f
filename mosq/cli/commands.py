"""The complete command line of `mosq`, by `click`: options, help, usage errors. Other commands (`mosq index`, `mosq
passwd`, `mosq ctl`) are subcommands of the same group; without a subcommand, the broker runs."""

import click

from mosq.cli.check import EXIT_FAILED, EXIT_OK, check
from mosq.cli.commands_config import config
from mosq.cli.commands_ctl import ctl
from mosq.cli.commands_doctor import doctor
from mosq.cli.commands_journal import journal
from mosq.cli.commands_passwd import passwd
from mosq.cli.commands_signal import signal_command, upgrade
from mosq.cli.lazy_command import LazyCommand
from mosq.cli.start import EXIT_CONFIG, WORKERS_MAX, Start, run
from mosq.config.options import BY_KEYWORD, TUNING, Option
from mosq.tools.db.commands import db
from mosq.version import MOSQUITTO_VERSION, VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Command = Callable[..., Any]

PORT_MAX = 65535
PORT_DIGITS_MAX = 20
SHOWN_MAX = 40
MOSQUITTO_USAGE = "Usage: mosquitto [-c config_file] [-d] [-h] [-p port] [-v]"
# Mosquitto's words for an option without its value
WITHOUT_VALUE = {"-c": "-c argument given, but no config file specified.",
                 "-p": "-p argument given, but no port specified.",
                 "--tls-keylog": "--tls-keylog argument given, but no file specified."}
SAME_OPTION = {"--config-file": "-c", "--port": "-p"}

EPILOG = """\b
Examples:
  mosq                              accept clients of this machine only, on port 1883
  mosq -v -p 1884                   the same on port 1884, and log everything
  mosq -c /etc/mosquitto/mosquitto.conf
  mosq -c mosq.conf -d              run in the background after the broker listens
  mosq -c mosq.conf --test-config   only check the file
  mosq --pool-grow 5000 --pool-idle-max 50000     for many clients that connect and disconnect
  mosq --index tree --match-cache off             measure the index without hash tables and cache
  mosq index explain site/7/temp                  show which filters a topic matches, and how
  mosq doctor /etc/mosquitto/mosquitto.conf       show what needs attention
  mosq config diff old.conf new.conf              show what a reload would change
  mosq upgrade                                    replace the running broker, keep connections
  mosq init                                       write a first configuration
  mosq pub -t a -m hello                          publish, with the options of mosquitto_pub
  mosq sub -v -t 'site/#'                         subscribe, with the options of mosquitto_sub
  mosq top                                        show a running broker and its clients
  mosq trace --client sensor-7                    follow a client, packet by packet
  mosq passwd -c passwd ann                       make a password file with one user
  mosq db stats /var/lib/mosquitto                show the contents of the store
  mosq journal stats /var/lib/mosquitto           show the streams and their consumers
  mosq bench pairs --start                        measure a broker on this machine
  mosq pipeline run --once                        make tables of the broker's streams

\b
Exit status:
  0  stopped by SIGTERM or SIGINT
  1  cannot start, for example because a port is in use
  3  error in the configuration or the command line
"""


EXPLAIN_EPILOG = """\b
Examples:
  mosq index explain site/7/temp
  mosq index explain -h broker.example -p 1884 -u ann -P secret site/7/temp
  mosq index explain --json site/7/temp | jq '.filters[].filter'

\b
The columns and the cost line are explained in docs/index.md. With an acl_file, users that may
write to $CONTROL/mosq/index/v1 may run this; without one, every user of the broker's machine.

\b
Exit status:
  0  the broker answered, also if no filter matches
  1  no answer: no broker there, not allowed, not a mosq broker
  3  error in the command line
"""


def tuning_flag(option: Option) -> "Callable[[Command], Command]":
    """Return the command line flag of a tuning option, such as --match-cache; its help is that of the option table."""
    metavar = "|".join(option.choices) or ("N|off" if option.kind == "count" else "N")
    default = "" if option.default in ("", None) else f"  [default: {option.default}]"
    return click.option(f"--{option.name.replace('_', '-')}", option.name, metavar=metavar,
                        help=f"{option.help[:1].upper()}{option.help[1:]}.{default}")


def tuning_flags(command: "Command") -> "Command":
    """Add the flags of all tuning options to a command."""
    for name in reversed(TUNING):
        command = tuning_flag(BY_KEYWORD[name])(command)
    return command


def _is_decimal(text: str) -> bool:
    """Return whether the text is a number in ASCII digits, and not too long for one of this command line."""
    return text.isascii() and text.isdigit() and len(text) <= PORT_DIGITS_MAX


class Port(click.ParamType):            # type: ignore[type-arg]  # generic only since click 8.2
    """Accept a port; the error begins with Mosquitto's words."""

    name = "port"

    def convert(self, value: "Any", param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the port. Raises click.UsageError."""
        if not isinstance(value, int):
            text = str(value)
            if not _is_decimal(text):
                self._refuse(text, ctx)
            value = int(text)
        if not 0 < value <= PORT_MAX:
            self._refuse(str(value), ctx)
        return int(value)

    def _refuse(self, text: str, context: click.Context | None) -> "NoReturn":
        raise click.UsageError(f"Invalid port specified ({text[:SHOWN_MAX]}). Expected a number from 1 to {PORT_MAX}.",
                               context)


class Workers(click.ParamType):         # type: ignore[type-arg]  # as Port
    """Accept a number of workers, in ASCII digits: click.IntRange accepts those of all scripts."""

    name = "number"

    def convert(self, value: "Any", param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises click.BadParameter."""
        text = str(value)
        if not _is_decimal(text) or text[0] == "0" or int(text) > WORKERS_MAX:
            self.fail(f"{text[:SHOWN_MAX]!r} is no number from 1 to {WORKERS_MAX}, in decimal digits.", param, ctx)
        return int(text)


class Broker(click.Group):
    """The command without a subcommand. Scripts read the first lines of its help, and its errors, in Mosquitto's
    words."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the version, Mosquitto's usage, and that of mosq."""
        formatter.write(f"mosquitto version {MOSQUITTO_VERSION} (mosq {VERSION})\n\n{MOSQUITTO_USAGE}\n")
        super().format_usage(ctx, formatter)


@click.group(cls=Broker, invoke_without_command=True, subcommand_metavar="", epilog=EPILOG,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("-c", "--config-file", "config_file", metavar="FILE", help="Configuration file (mosquitto.conf).")
@click.option("-p", "--port", "ports", metavar="PORT", type=Port(), multiple=True,
              help="Listen on this port for clients of this machine; up to 10 times. Ignored if the configuration "
                   "has a listener.")
@click.option("-d", "--daemon", "background", is_flag=True, help="Run in the background after the broker listens.")
@click.option("-q", "--quiet", is_flag=True, help="Log nothing; overrides -v and the configuration.")
@click.option("-v", "--verbose", is_flag=True, help="Log everything; overrides the configuration.")
@click.option("--workers", "workers", metavar="N", type=Workers(),
              help="Serve the clients with N processes; the same as the option `cluster_local N`.")
@click.option("--tls-keylog", "tls_keylog", metavar="FILE", help="Write TLS keys to this file, for Wireshark; never in "
              "production.")
@click.option("--compat", is_flag=True, help="Do as Mosquitto does also where the standard or good sense ask "
              "for something else; the same as the option `compat true`.")
@click.option("--test-config", "test_config", is_flag=True,
              help="Check the configuration file without starting; needs -c.")
@tuning_flags
@click.version_option(VERSION, message="mosq version %(version)s")
@click.pass_context
def mosq(                               # parameters: one for each option of the command
        context: click.Context, /, config_file: str | None, ports: tuple[int, ...], background: bool, quiet: bool,
        verbose: bool, compat: bool, test_config: bool, tls_keylog: str | None, workers: int | None,
        **tuning: str | None) -> int:
    """An MQTT broker for MQTT 3.1, 3.1.1 and 5.0 that replaces Mosquitto and reads its configuration."""
    if context.invoked_subcommand is not None:
        if any(value not in (None, (), False) for value in context.params.values()):
            raise click.UsageError(f"Options before `{context.invoked_subcommand}` apply to starting a broker; "
                                   "expected them after the command.")
        return EXIT_OK
    overrides = tuple(f"{name} {value}" for name, value in tuning.items() if value is not None)
    if workers is not None:
        overrides += (f"cluster_local {workers}",)
    if test_config:
        if config_file is None:
            raise click.UsageError("--test-config needs a file to check; expected `-c FILE`.")
        return check(config_file, overrides)
    return run(Start(config_file, ports, background, quiet, verbose, overrides, compat, tls_keylog))


mosq.add_command(config)
mosq.add_command(db)
mosq.add_command(doctor)
mosq.add_command(journal)
mosq.add_command(signal_command)
mosq.add_command(upgrade)


@mosq.group(no_args_is_help=False)
def index() -> None:
    """Query the subscription index of a running broker."""


@index.command(epilog=EXPLAIN_EPILOG, context_settings={"help_option_names": ["--help"]})
@click.argument("topic")
@click.option("-h", "--host", default="localhost", show_default=True, metavar="HOST",
              help="Host name or address of the broker.")
@click.option("-p", "--port", default=1883, show_default=True, metavar="PORT", type=click.IntRange(1, 65535),
              help="Port of the broker.")
@click.option("-i", "--id", "client_id", metavar="ID",
              help="Client id of this connection. With workers, the worker of this id answers.")
@click.option("-u", "--username", metavar="USER", help="User name for the login.")
@click.option("-P", "--password", metavar="PASSWORD", help="Password for the login.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one line of JSON.")
def explain(topic: str, host: str, port: int, client_id: str | None, username: str | None, password: str | None,
            as_json: bool) -> int:
    """Show which filters match TOPIC, how the index finds them, and the cost."""
    import json

    from mosq.embed.explain import NoAnswerError, query, report

    try:
        answer = query(host, port, topic, username, password, client_id)
        click.echo(json.dumps(answer, ensure_ascii=False) if as_json else report(answer))
    except NoAnswerError as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="TOPIC") from None
    return EXIT_OK


mosq.add_command(LazyCommand("bench", "mosq.cli.commands_bench:bench",
                      "Measure any MQTT broker under load: rates, latencies, lost messages."))
mosq.add_command(LazyCommand("pipeline", "mosq.cli.pipeline.commands:pipeline",
                      "Make tables, audits and reports of the broker's streams with Spark."))
mosq.add_command(LazyCommand("init", "mosq.cli.commands_init:init",
                      "Write a commented configuration with users and TLS certificates."))
mosq.add_command(LazyCommand("backup", "mosq.tools.backup.commands:backup",
                      "Write the store, the streams and the configuration of a broker into one archive."))
mosq.add_command(LazyCommand("restore", "mosq.tools.backup.commands:restore",
                      "Put the store and the configuration of a backup in place."))
mosq.add_command(LazyCommand("cluster", "mosq.tools.cluster.command:cluster",
                      "Create and watch a cluster of nodes, whose stores are in Redis."))
mosq.add_command(LazyCommand("pub", "mosq.tools.clients.command:pub",
                      "Publish messages to a broker, with the options of mosquitto_pub."))
mosq.add_command(LazyCommand("sub", "mosq.tools.clients.command:sub",
                      "Subscribe to topics of a broker and print the messages, with the options of mosquitto_sub."))
mosq.add_command(LazyCommand("top", "mosq.tools.top.command:top",
                      "Show a running broker and its clients, live: rates, queues, drops, hot topics."))
mosq.add_command(LazyCommand("trace", "mosq.tools.trace.command:trace",
                      "Follow a client, a topic or an address of a running broker, packet by packet."))
mosq.add_command(passwd)
mosq.add_command(ctl)


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    try:
        status = mosq.main(arguments, prog_name="mosq", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"Error: {_text_of(error)}\nTry '{_help_of(error)}' for help.", err=True)
        return EXIT_CONFIG
    except click.Abort:                         # Ctrl-C; click has ended the line
        click.echo("Interrupted.", err=True)
        return EXIT_FAILED
    return status if isinstance(status, int) else EXIT_OK


def _text_of(error: click.ClickException) -> str:
    """Return the text of an error in the command line; those about a broker's start begin with Mosquitto's words."""
    text = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and context.parent is not None:
        return text
    if isinstance(error, click.NoSuchOption):
        likely = _likely(error.option_name, error.possibilities or [])
        near = f" Did you mean {' or '.join(likely)}?" if likely else ""
        return f"Unknown option '{error.option_name}'.{near}"
    if isinstance(error, click.BadOptionUsage):
        return WITHOUT_VALUE.get(SAME_OPTION.get(error.option_name, error.option_name), text)
    return text


def _likely(option: str, possibilities: "Sequence[str]") -> list[str]:
    """Return the options that may be meant. click compares the dashes too, which makes all short options alike."""
    from difflib import get_close_matches

    word = option.lstrip("-")
    near = get_close_matches(word, [one.lstrip("-") for one in possibilities])
    return sorted(one for one in possibilities if one.lstrip("-") in near or one.lstrip("-").startswith(word))


def _help_of(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "mosq -h" if context is None or context.parent is None else f"{context.command_path} --help"
