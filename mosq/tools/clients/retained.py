"""`mosq ctl retained`: lists, prints and removes retained messages of any broker, by subscribing.

A broker does not report the last retained message of a subscription, so a command ends when none has come for
`--wait` seconds. One packet is read after the other is handled: a long list takes no memory.
"""

import sys
import time

import click
import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode

from mosq.tools.clients.command import check_filter, check_topic
from mosq.tools.clients.errors import EXIT_FAILED, EXIT_OK, ClientError
from mosq.tools.clients.session import CONNECT_TIMEOUT_S, Plan, Session
from mosq.tools.table import shown
from mosq.tools.terminal import silence_broken_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paho.mqtt.reasoncodes import ReasonCode

    from mosq.tools.ctl.connection import Connection

    Take = Callable[["Lister", paho.MQTTMessage], bool]

PREVIEW_BYTES = 60
COUNT = 1000
TURN_S = 0.1

EPILOG = """\b
Examples:
  mosq ctl retained ls                               topic, bytes and the beginning of each payload
  mosq ctl -u admin -P secret retained ls 'site/+/state' --count 20
  mosq ctl retained get site/7/state > state.bin     the payload, byte by byte
  mosq ctl retained rm 'old/#' --yes                 remove all below old/

\b
The user needs the right to read the topics, and for rm to write them.

\b
Exit status:
  0  done; for get: there is such a message
  1  not done: no broker there, not allowed, no such message
  3  error in the command line
"""


class Lister(Session):
    """Subscribes, and calls `take` with itself and each retained message until it returns False."""

    def __init__(self, connection: "Connection", filters: list[str], wait_s: float, take: "Take") -> None:
        super().__init__(connection, Plan())
        self.filters, self.wait_s, self.take = filters, wait_s, take
        self.removing: set[int] = set()
        self.n_removed = self.n_denied = 0
        self._last = 0.0
        self._is_subscribed = self._has_ended = False
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._message
        self.client.on_publish = self._published

    def run(self) -> None:
        """Connect, and handle messages until the last. Raises ClientError."""
        self.connect()
        self._last = time.monotonic()
        while not (self._has_ended and not self.removing):
            rc = self.client.loop(TURN_S)
            self.raise_refusal()
            if rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise self.lost()
            pause = time.monotonic() - self._last
            if self._is_subscribed and not self.removing and pause > self.wait_s:
                self._has_ended = True
            if pause > CONNECT_TIMEOUT_S:
                raise ClientError(f"Error: The broker has not answered within {CONNECT_TIMEOUT_S:g} s.")
        self.disconnect()
        if self.n_denied:
            raise ClientError(f"Error: The broker has refused to remove {self.n_denied:,} of {self.n_removed:,} "
                              "messages. Check the rights of the user.")

    def remove(self, topic: str) -> None:
        """Remove the retained message of a topic."""
        self.n_removed += 1
        self.removing.add(self.client.publish(topic, b"", 1, retain=True).mid)

    def on_connect(self) -> None:
        """Subscribe."""
        self.client.subscribe([(one, 0) for one in self.filters])

    def _subscribed(                    # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, mid: int, reasons: "list[ReasonCode]",
            properties: object) -> None:
        denied = [str(reason) for reason in reasons if reason.is_failure]
        if denied:
            raise ClientError(f"Error: The broker refuses the subscription: {denied[0]}. Check the rights of the user.")
        self._is_subscribed, self._last = True, time.monotonic()

    def _message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        if self._has_ended or not message.retain or not message.payload:
            return
        self._last = time.monotonic()
        self._has_ended = not self.take(self, message)

    def _published(                     # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, mid: int, reason: "ReasonCode", properties: object) -> None:
        self.removing.discard(mid)
        self.n_denied += reason.is_failure
        self._last = time.monotonic()


WAIT = click.option("--wait", "wait_s", type=click.FloatRange(0.01, 3600), default=1.0, show_default=True, metavar="S",
                    help="End when no further message has come for this time.")
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("retained", epilog=EPILOG, context_settings=SETTINGS)
def retained() -> None:
    """List, print and remove retained messages; any broker."""


@retained.command("ls")
@click.argument("filters", metavar="[FILTER]...", nargs=-1)
@click.option("--count", type=click.IntRange(1), default=COUNT, show_default=True, metavar="N",
              help="End after N messages.")
@WAIT
@click.pass_obj
def list_(given: "Any", /, filters: tuple[str, ...], count: int, wait_s: float) -> int:
    """List topics, bytes and the beginning of payloads; without a FILTER all but those that begin with $."""
    seen = 0

    def take(lister: Lister, message: paho.MQTTMessage) -> bool:
        nonlocal seen
        if seen == count:
            click.echo(f"There are more; give --count for more than {count:,}.", err=True)
            return False
        seen += 1
        text = shown(message.payload[:PREVIEW_BYTES].decode(errors="backslashreplace"))
        more = "..." if len(message.payload) > PREVIEW_BYTES else ""
        click.echo(f"{len(message.payload):>9,}  {shown(message.topic)}  {text}{more}")
        return True

    return _run(given, list(filters) or ["#"], wait_s, take)


@retained.command("get")
@click.argument("topic")
@WAIT
@click.pass_obj
def get(given: "Any", /, topic: str, wait_s: float) -> int:
    """Print the payload of the retained message of TOPIC, byte by byte."""
    found = False

    def take(lister: Lister, message: paho.MQTTMessage) -> bool:
        nonlocal found
        found = True
        payload = bytes(message.payload)
        if sys.stdout.isatty():         # a payload cannot control the terminal
            click.echo("".join(c if c == "\n" else shown(c) for c in payload.decode(errors="backslashreplace")))
        else:
            sys.stdout.buffer.write(payload)
            sys.stdout.flush()
        return False

    _checked([topic], check_topic)
    status = _run(given, [topic], wait_s, take)
    if status == EXIT_OK and not found:
        click.echo(f"Error: There is no retained message for {shown(topic)}, or the user may not read it.", err=True)
        return EXIT_FAILED
    return status


@retained.command("rm")
@click.argument("filters", metavar="FILTER...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask before topics of a filter with wildcards are removed.")
@WAIT
@click.pass_obj
def remove(given: "Any", /, filters: tuple[str, ...], yes: bool, wait_s: float) -> int:
    """Remove retained messages."""
    if not yes and any("#" in one or "+" in one for one in filters):
        click.confirm(f"Remove all retained messages of {', '.join(map(shown, filters))}?", abort=True)
    seen = 0

    def take(lister: Lister, message: paho.MQTTMessage) -> bool:
        nonlocal seen
        seen += 1
        lister.remove(message.topic)
        return True

    status = _run(given, list(filters), wait_s, take)
    if status == EXIT_OK:
        click.echo(f"{seen:,} retained messages removed.")
    return status


def _checked(texts: list[str], check: "Callable[[str, str], None]") -> None:
    try:
        for text in texts:
            check(text, "topic")
    except ClientError as error:
        raise click.UsageError(str(error).removeprefix("Error: ")) from None


def _run(given: "Any", filters: list[str], wait_s: float, take: "Take") -> int:
    from mosq.tools.ctl.spec import BadInputError
    from mosq.tools.ctl.terminal import secret

    _checked(filters, check_filter)
    connection = given.connection
    try:
        if connection.username is not None and connection.password is None:
            connection.password = secret(f"Password for {connection.username}: ")
        Lister(connection, filters, wait_s, take).run()
    except (ClientError, BadInputError) as error:
        text = str(error)
        click.echo(text if text.startswith(("Error", "Connection error")) else f"Error: {text}", err=True)
        return EXIT_FAILED
    except BrokenPipeError:
        silence_broken_pipe()
    except KeyboardInterrupt:
        return EXIT_FAILED
    return EXIT_OK
