"""The commands `mosq pub` and `mosq sub`: the options of mosquitto_pub and mosquitto_sub, on the command line and in
their options files (~/.config/mosquitto_pub, ~/.config/mosquitto_sub). Errors end with status 1, as there."""

import itertools
import os
import signal
import sys

import click

from mosq.config.acl import FILTER_BYTES_MAX, is_filter
from mosq.tools.clients.errors import EXIT_FAILED, EXIT_OK, ClientError
from mosq.tools.ctl.connection import LEVELS
from mosq.tools.ctl.options import CONNECTION_OPTIONS, connection_of, default_file, read_lines
from mosq.tools.terminal import silence_broken_pipe
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mosq.tools.clients.session import Plan, Will
    from mosq.tools.clients.subscribe import Reading
    from mosq.tools.ctl.connection import Connection

SETTINGS = {"help_option_names": ["--help"], "max_content_width": 100, "allow_interspersed_args": True}
KEEPALIVE_MIN, KEEPALIVE_MAX = 5, 65535
FOR_EVER = 0xFFFFFFFF
PROPERTIES = "properties"
STATUSES = """\b
Exit status:
  0        done
  1        an error in the command line, or no broker at the address
  7, 8     the connection was lost; an error of TLS
  27       `mosq sub -W`: the time is over
  other    the broker refused the login: the code of its CONNACK
"""
PUB_EPILOG = f"""\b
Examples:
  mosq pub -t site/7/temp -m 21.5
  mosq pub -t site/7/state -m on -q 1 -r                   acknowledged and retained
  mosq pub -t site/7/state -n -r                           remove the retained message
  sensors | mosq pub -t site/7/temp -l                     a message for each line
  mosq pub -h broker.example --cafile ca.crt -u ann -P secret -t a -f picture.jpg
  mosq pub -L mqtts://ann:secret@broker.example/site/7 -m hello
  mosq pub -t a -m x -D PUBLISH content-type text/plain -D PUBLISH user-property unit C

{STATUSES}"""
SUB_EPILOG = f"""\b
Examples:
  mosq sub -v -t 'site/#'                                  topic and payload
  mosq sub -t site/7/temp -C 1 -W 5                        one message, or status 27 after 5 seconds
  mosq sub -t '$SYS/#' -v -T '$SYS/broker/load/#'          without these topics
  mosq sub -t 'site/#' -F '%I %t %q %x'                    time, topic, QoS, payload in hexadecimal
  mosq sub -t 'site/#' -F %j                               one line of JSON for each message
  mosq sub -i logger -c -q 1 -t 'site/#'                   a session that the broker keeps
  mosq sub -t 'old/#' --remove-retained --retained-only    remove retained messages

\b
Parameters of -F:
  %t topic  %p payload  %x %X payload in hexadecimal  %l its length  %q QoS  %r retain  %m packet id
  %I time in ISO 8601  %U Unix time  @X strftime's %X  @N nanoseconds  %j %J JSON
  %A %C %D %E %F %P %R %S properties of MQTT 5; %10t %-10t %.10t %08l widths; \\n \\t \\0 \\e

{STATUSES}"""


class ClientCommand(click.Command):
    """Reads the options file first, takes `-D` with its three or four words, and ends errors with status 1."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        from mosq.tools.clients.properties import take_properties

        with_value = frozenset(name for one in self.params if isinstance(one, click.Option) and not one.is_flag
                               for name in one.opts)
        try:
            rest, properties = take_properties([*self._of_a_file(args), *args], with_value)
            parsed = super().parse_args(context, rest)
            if parsed or context.args:
                raise click.UsageError(f"Unknown option '{(parsed or context.args)[0]}'.")
        except (click.UsageError, ClientError) as error:
            text = error.format_message() if isinstance(error, click.UsageError) else str(error)
            click.echo(f"{text if text.startswith('Error') else f'Error: {text}'}\n\nUse '{context.command_path} "
                       "--help' to see usage.", err=True)
            context.exit(EXIT_FAILED)
        context.meta[PROPERTIES] = properties
        return []

    def _of_a_file(self, args: list[str]) -> list[str]:
        """Return the options of the options file: that of -o, or the default one."""
        given = [value for flag, value in itertools.pairwise(args) if flag == "-o"]
        path = given[-1] if given else default_file(f"mosquitto_{self.name}")
        return [word for _, line in read_lines(path, must_be_there=bool(given)) for word in line]


def options(*own: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return the decorator that adds the options of a connection, those of both commands, and `own`."""
    def add(command: "Callable[..., Any]") -> "Callable[..., Any]":
        for option in reversed((*own, *COMMON, *CONNECTION_OPTIONS)):
            command = option(command)
        return command
    return add


COMMON = (
    click.option("-c", "--disable-clean-session", "is_kept", is_flag=True,
                 help="Keep the session when this client disconnects; needs -i."),
    click.option("-D", "--property", "property_shown", metavar="COMMAND NAME VALUE",
                 help="Add a property of MQTT 5 to a packet: CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT or "
                      "WILL."),
    click.option("-I", "--id-prefix", "id_prefix", metavar="PREFIX", help="Client id: PREFIX and the process id."),
    click.option("-k", "--keepalive", default="60", metavar="S", help="Keep Alive in seconds.  [default: 60]"),
    click.option("-L", "--url", metavar="URL",
                 help="Broker and topic: mqtt, mqtts, ws or wss://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC. With ws, the "
                      "part behind the port is the path, and -t gives the topic."),
    click.option("-P", "--pw", "password", metavar="PASSWORD", help="Password of the user."),
    click.option("-q", "--qos", default="0", metavar="QOS", help="QoS of the messages.  [default: 0]"),
    click.option("-V", "--protocol-version", "level", metavar="5|311|31", help="MQTT version.  [default: 311]"),
    click.option("-x", "--session-expiry-interval", "expiry", metavar="S",
                 help="Session Expiry Interval in seconds, or -1 for a session that does not expire; MQTT 5."),
    click.option("--nodelay", is_flag=True, help="Send small packets at once (TCP_NODELAY)."),
    click.option("--ws", is_flag=True, help="Connect over WebSockets."),
    click.option("--will-topic", metavar="TOPIC", help="Topic of the will."),
    click.option("--will-payload", metavar="TEXT", help="Payload of the will."),
    click.option("--will-qos", default="0", metavar="QOS", help="QoS of the will."),
    click.option("--will-retain", is_flag=True, help="Retain the will."),
    click.version_option(VERSION, message="%(prog)s version %(version)s"),
)


@click.command("pub", cls=ClientCommand, epilog=PUB_EPILOG, context_settings=SETTINGS)
@options(
    click.option("-t", "--topic", metavar="TOPIC", help="Topic of the message."),
    click.option("-m", "--message", metavar="TEXT", help="Payload."),
    click.option("-f", "--file", "file", metavar="FILE", help="Send the content of a file."),
    click.option("-l", "--stdin-line", "by_line", is_flag=True, help="Send each line of the input as a message."),
    click.option("-n", "--null-message", "is_null", is_flag=True, help="Send an empty payload."),
    click.option("-s", "--stdin-file", "whole_input", is_flag=True, help="Send the whole input as one message."),
    click.option("-r", "--retain", is_flag=True, help="Retain the message."),
    click.option("-M", "--max-inflight", "inflight", metavar="N",
                 help="Messages of QoS 1 and 2 in flight.  [default: 20]"),
    click.option("--repeat", default="1", metavar="N", help="Send the message N times; with -f, -m, -n or -s."),
    click.option("--repeat-delay", default="0", metavar="S", help="Seconds between two of them."),
)
@click.pass_context
def pub(context: click.Context, /, **given: "Any") -> int:
    """Publish messages to a broker, with the options of mosquitto_pub."""
    from mosq.tools.clients import publish

    def run() -> int:
        connection, topic = _connection(given)
        plan = _plan(given, context.meta[PROPERTIES], connection)
        kinds = [name for name in ("message", "file", "by_line", "is_null", "whole_input")
                 if given[name] not in (None, False)]
        if len(kinds) > 1:
            raise ClientError("Error: Only one type of message can be sent at once.")
        topic = given["topic"] if given["topic"] is not None else topic
        if not topic or not kinds:
            raise ClientError("Error: Both topic and message must be supplied. Expected -t TOPIC and one of -m TEXT, "
                              "-f FILE, -l, -n, -s.")
        check_topic(topic, "publish topic")
        times = _number(given["repeat"], "--repeat", 1, 1 << 62)
        delay = _decimal(given["repeat_delay"], "--repeat-delay", 0, 1e9, "seconds, such as 0.5")
        if given["inflight"] is not None:
            plan.inflight = _number(given["inflight"], "-M", 1, 65535)
        message = publish.Message(topic, _qos(given["qos"]), given["retain"])
        payloads: Iterable[bytes]
        if given["by_line"]:
            payloads = publish.lines_of_input()
        else:
            payload = (b"" if given["is_null"] else os.fsencode(given["message"]) if given["message"] is not None
                       else publish.whole(given["file"]))
            payloads = itertools.repeat(payload, times)
        return publish.Publisher(connection, plan, message, given["quiet"]).run(payloads, delay)

    return _ended(context, run, given["quiet"])


@click.command("sub", cls=ClientCommand, epilog=SUB_EPILOG, context_settings=SETTINGS)
@options(
    click.option("-t", "--topic", "filters", metavar="FILTER", multiple=True, help="Subscribe; may be repeated."),
    click.option("-T", "--filter-out", "left_out", metavar="FILTER", multiple=True,
                 help="Print no messages with these topics; may be repeated."),
    click.option("-U", "--unsubscribe", "unsubscribed", metavar="FILTER", multiple=True,
                 help="Unsubscribe, after subscribing; may be repeated."),
    click.option("-C", "count", metavar="N", help="End after N messages."),
    click.option("-W", "timeout", metavar="S", help="End after S seconds, with status 27."),
    click.option("-E", "exits_after_subscribing", is_flag=True, help="End when the broker has answered SUBSCRIBE."),
    click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Print the topic, too."),
    click.option("-F", "format_text", metavar="FORMAT", help="Print messages in this format; see below."),
    click.option("-N", "no_newline", is_flag=True, help="Print no end of line."),
    click.option("--pretty", is_flag=True, help="Print JSON (-F %j) in several lines."),
    click.option("-R", "no_retained", is_flag=True, help="Print no retained messages."),
    click.option("--retained-only", is_flag=True, help="Print only retained messages; end at the first other one."),
    click.option("--remove-retained", is_flag=True, help="Remove each retained message that is received."),
    click.option("--retain-as-published", is_flag=True, help="Keep the flag of the publisher; MQTT 5."),
    click.option("--retain-handling", type=click.Choice(["always", "new", "never"]), default="always",
                 help="When the broker sends retained messages; MQTT 5."),
    click.option("--random-filter", default="100", metavar="PERCENT", help="Print this percentage of the messages."),
)
@click.pass_context
def sub(context: click.Context, /, **given: "Any") -> int:
    """Subscribe to topics of a broker and print the messages, with the options of mosquitto_sub."""
    from mosq.tools.clients.subscribe import Subscriber

    def run() -> int:
        connection, topic = _connection(given)
        plan = _plan(given, context.meta[PROPERTIES], connection)
        reading = _reading(given, topic)
        return Subscriber(connection, plan, reading).run()

    return _ended(context, run, given["quiet"])


def _ended(context: click.Context, run: "Callable[[], int]", is_quiet: bool) -> int:
    """Run a client; return its exit status. SIGINT and SIGTERM end it with status 0, as mosquitto_sub."""
    # not by way of SIGINT, which a shell without job control ignores in the commands that it starts with `&`
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = run()
        sys.stdout.flush()
    except ClientError as error:
        if not is_quiet:
            click.echo(str(error), err=True)
        status = error.status
    except click.UsageError as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        status = EXIT_FAILED
    except BrokenPipeError:
        silence_broken_pipe()
        status = EXIT_OK
    except KeyboardInterrupt:
        status = EXIT_OK
    finally:
        signal.signal(signal.SIGTERM, before)
    context.exit(status)


# ---------------------------------------------------------------- from options to parameters

def _connection(given: "dict[str, Any]") -> "tuple[Connection, str]":
    """Return the connection, and the topic of the URL. Raises ClientError, click.UsageError."""
    if given["level"] is not None and given["level"] not in LEVELS:
        raise ClientError("Error: Invalid protocol version argument given. Expected 5, 311 or 31.")
    made = connection_of(given)
    if given["level"] is None:
        made.level = LEVELS["311"]
    topic = ""
    if given["url"] is not None and made.transport == "tcp":
        topic = given["url"].partition("://")[2].partition("/")[2]
    if given["ws"]:
        made.transport = "websockets"
    if made.password is not None and made.username is None:
        raise ClientError("Error: Problem setting username and/or password: -P needs a user name. Expected "
                          "-u USER -P PASSWORD.")
    if made.client_id is not None and given["id_prefix"] is not None:
        raise ClientError("Error: -i and -I argument cannot be used together.")
    if given["id_prefix"] is not None:
        made.client_id = f"{given['id_prefix']}-{os.getpid()}"
    return made, topic


def _plan(given: "dict[str, Any]", words: "list[list[str]]", connection: "Connection") -> "Plan":
    """Return the plan of a session; properties make it one of MQTT 5. Raises ClientError."""
    from paho.mqtt.packettypes import PacketTypes

    from mosq.tools.clients.properties import empty, properties_of
    from mosq.tools.clients.session import Plan

    plan = Plan()
    plan.properties = properties_of(words)
    plan.is_clean = not given["is_kept"]
    expiry = _expiry(given["expiry"])
    if (given["is_kept"] or expiry == FOR_EVER) and not connection.client_id:
        raise ClientError("Error: You must provide a client id if you are using the -c option, or a session that "
                          "does not expire. Expected -i ID.")
    if plan.properties or expiry is not None:
        connection.level = LEVELS["5"]
    if connection.level == LEVELS["5"] and (expiry is not None or given["is_kept"]):
        connect = plan.properties.setdefault("CONNECT", empty(PacketTypes.CONNECT))
        connect.SessionExpiryInterval = FOR_EVER if expiry is None else expiry
    plan.keepalive_s = _number(given["keepalive"], "-k", KEEPALIVE_MIN, KEEPALIVE_MAX)
    plan.nodelay = given["nodelay"]
    plan.will = _will(given)
    return plan


def _will(given: "dict[str, Any]") -> "Will | None":
    from mosq.tools.clients.session import Will

    if given["will_topic"] is None:
        for name in ("payload", "retain"):
            if given[f"will_{name}"] not in (None, False):
                raise ClientError(f"Error: Will {name} given, but no will topic given. Expected --will-topic TOPIC.")
        return None
    check_topic(given["will_topic"], "will topic")
    return Will(given["will_topic"], os.fsencode(given["will_payload"] or ""), _qos(given["will_qos"]),
                given["will_retain"])


def _reading(given: "dict[str, Any]", topic: str) -> "Reading":
    from mosq.tools.clients.output import compiled
    from mosq.tools.clients.subscribe import Reading

    made = Reading()
    made.filters = [*given["filters"], *([topic] if topic else [])]
    if not made.filters:
        raise ClientError("Error: You must specify a topic to subscribe to. Expected -t FILTER.")
    for name, filters in (("subscription topic", made.filters), ("filter topic", given["left_out"]),
                          ("unsubscribe topic", given["unsubscribed"])):
        for one in filters:
            check_filter(one, name)
    made.left_out, made.unsubscribed = list(given["left_out"]), list(given["unsubscribed"])
    made.qos = _qos(given["qos"])
    if given["count"] is not None:
        made.count = _number(given["count"], "-C", 1, 1 << 62)
    if given["timeout"] is not None:
        made.timeout_s = _number(given["timeout"], "-W", 1, 1 << 31)
    if given["format_text"] is not None:
        made.formatted = compiled(given["format_text"], given["pretty"])
    made.percent = _decimal(given["random_filter"], "--random-filter", 0.1, 100, "0.1 to 100")
    made.retain_handling = ("always", "new", "never").index(given["retain_handling"])
    made.is_quiet = given["quiet"]
    for name in ("retain_as_published", "is_verbose", "no_newline", "no_retained", "retained_only",
                 "remove_retained", "exits_after_subscribing"):
        setattr(made, name, given[name])
    return made


def check_topic(text: str, name: str) -> None:
    """Raise ClientError if a text is no topic name."""
    if not text or "+" in text or "#" in text or "\0" in text or len(os.fsencode(text)) > FILTER_BYTES_MAX:
        raise ClientError(f"Error: Invalid {name} '{text[:80]}', does it contain '+' or '#'?")
    _check_utf8(text, name)


def check_filter(text: str, name: str) -> None:
    """Raise ClientError if a text is no topic filter."""
    if not text or not is_filter(text) or "\0" in text or len(os.fsencode(text)) > FILTER_BYTES_MAX:
        raise ClientError(f"Error: Invalid {name} '{text[:80]}', are all '+' and '#' wildcards correct?")
    _check_utf8(text, name)


def _check_utf8(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ClientError(f"Error: The {name} is not UTF-8.") from None


def _qos(text: str) -> int:
    if text not in ("0", "1", "2"):
        raise ClientError(f"Error: Invalid QoS given: {text}. Expected 0, 1 or 2.")
    return int(text)


def _number(text: str, flag: str, least: int, most: int) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= number <= most:
        upper = f" to {most}" if most < 1 << 31 else " or more"
        raise ClientError(f"Error: Invalid value {text[:40]!r} of {flag}. Expected a number, {least}{upper}.")
    return number


def _expiry(text: str | None) -> int | None:
    if text is None:
        return None
    return FOR_EVER if text in ("-1", "∞") else _number(text, "-x", 0, FOR_EVER)


def _decimal(text: str, flag: str, least: float, most: float, expected: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise ClientError(f"Error: Invalid value {text[:40]!r} of {flag}. Expected {expected}.")
    return number
