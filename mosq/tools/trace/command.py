"""`mosq trace` on the command line."""

import os
import signal
import sys
from binascii import a2b_base64

import click

from mosq.tools.ctl.connection import ConnectionProblemError
from mosq.tools.ctl.options import connection_of, merged, session_options
from mosq.tools.ctl.terminal import EXIT_FAILED, EXIT_OK, secret
from mosq.tools.terminal import escape_unknown_characters, silence_broken_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import IO, Any

    from mosq.tools.ctl.connection import Connection
    from mosq.tools.trace.follow import Follower

    Event = dict[str, Any]

SETTINGS = {"help_option_names": ["--help"], "max_content_width": 100}
EPILOG = """\b
Examples:
  mosq trace --client sensor-7                      follow one client, also its next connections
  mosq trace --topic 'site/+/temp'                  follow the messages of a topic filter, with drops and rules
  mosq trace --address 10.0.0.7                     every client of an address; also 10.0.0.0/24, 10.0.0.7:51234
  mosq trace -h broker.example -u ann --client a --json | jq .packet
  mosq trace --client a --pcap a.pcapng             for Wireshark; TLS and WebSockets appear as plain MQTT
  mosq trace --client a --pcap - | wireshark -k -i -

\b
Passwords, authentication data and the payloads of wills and of $CONTROL topics are hidden. It needs mosq with
`enable_control_api true` and a rule that allows $CONTROL/mosq/trace/v1; docs/trace.md explains the lines.

\b
Exit status:
  0  ended by Ctrl-C, or by --seconds or --count
  1  no trace: no broker there, login refused, not allowed, connection lost
  3  error in the command line
"""


@click.command("trace", epilog=EPILOG, context_settings=SETTINGS)
@click.option("--client", "client", metavar="ID", help="Follow the client with this id.")
@click.option("-t", "--topic", metavar="FILTER", help="Follow messages whose topic this filter matches.")
@click.option("--address", metavar="ADDRESS", help="Follow the clients of an address, a network, or one ADDRESS:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each event.")
@click.option("--pcap", metavar="FILE", help="Write a pcapng file; - is the standard output.")
@click.option("--payload", type=click.IntRange(0, 16384), default=128, show_default=True, metavar="BYTES",
              help="Bytes of each payload.")
@click.option("--rate", type=click.IntRange(1, 100000), default=1000, show_default=True, metavar="N",
              help="Events per second; further ones are counted.")
@click.option("--seconds", type=click.IntRange(1, 86400), default=3600, show_default=True, metavar="S",
              help="End after this time.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N events.")
@session_options
@click.pass_context
def trace(context: click.Context, /, **given: "Any") -> int:
    """Follow a client, a topic or an address of a running broker, packet by packet."""
    wanted = {name: given[key] for name, key in (("clientid", "client"), ("topic", "topic"), ("address", "address"))
              if given[key]}
    if len(wanted) != 1:
        raise click.UsageError("Expected one of --client ID, --topic FILTER and --address ADDRESS.")
    if given["as_json"] and given["pcap"] is not None:
        raise click.UsageError("--json and --pcap cannot be used together.")
    if given["pcap"] == "-" and sys.stdout.isatty():
        raise click.UsageError("--pcap - writes bytes of clients, which control a terminal: expected a pipe or a file.")
    connection = _connection(context, given)
    limits = {name: given[name] for name in ("payload", "rate", "seconds", "count") if given[name] is not None}
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(connection, {**wanted, **limits}, given)
    finally:
        signal.signal(signal.SIGTERM, before)


def _connection(context: click.Context, given: "Event") -> "Connection":
    taken = {name: given[name] for name in given if name not in ("client", "topic", "address", "as_json", "pcap",
                                                                   "payload", "rate", "seconds", "count")}
    combined = merged(context, taken)
    connection = connection_of({**combined, "qos": 1})
    if connection.username is not None and connection.password is None:
        connection.password = secret(f"Password for {connection.username}: ")
    return connection


def _interrupt(number: int, frame: "FrameType | None") -> None:
    raise KeyboardInterrupt


def _run(connection: "Connection", request: "Event", given: "Event") -> int:
    from mosq.tools.ctl.conversation import NoAnswerError
    from mosq.tools.trace.follow import Follower, TraceError

    status = EXIT_OK
    follower: Follower | None = None
    try:
        follower = Follower(connection)
        follower.begin(request)
        if given["pcap"] is None:
            _print(follower, given["as_json"])
        else:
            _write(follower, given["pcap"])
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        silence_broken_pipe()
    except (ConnectionProblemError, NoAnswerError, TraceError) as error:
        click.echo(f"Error: {error}", err=True)
        status = EXIT_FAILED
    except OSError as error:
        click.echo(f"Error: {given['pcap'] or 'output'}: {error.strerror}.", err=True)
        status = EXIT_FAILED
    finally:
        if follower is not None:
            _report(follower)
            follower.close()
    return status


def _report(follower: "Follower") -> None:
    from mosq.tools.trace.show import losses

    text = losses(follower.lost)
    if text:
        click.echo(f"Warning: {text}.", err=True)


def _print(follower: "Follower", as_json: bool) -> None:
    from mosq.tools.trace.show import json_line, line

    escape_unknown_characters()
    form = json_line if as_json else line
    write = sys.stdout.write
    for batch in follower.events():
        for event in batch:
            write(form(event) + "\n")
        sys.stdout.flush()


def _write(follower: "Follower", path: str) -> None:
    if path == "-":
        _pcap(follower, sys.stdout.buffer)
        return
    with open(path, "wb", opener=_private) as file:
        _pcap(follower, file)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, if it is new: it has messages of others."""
    return os.open(path, flags, 0o600)


def _pcap(follower: "Follower", file: "IO[bytes]") -> None:
    from mosq.tools.trace.pcapng import Writer
    from mosq.tools.trace.show import PACKETS, line

    writer = Writer(file)
    file.flush()
    try:
        for batch in follower.events():
            for event in batch:
                if event["event"] in PACKETS:
                    writer.packet(event, a2b_base64(event["frame"]))
                    continue
                writer.comment(line(event))
                if event["event"] == "closed":
                    writer.closed(event)
            file.flush()
    finally:
        others = sorted(port for port in writer.ports if port != 1883)
        if others:
            known = " ".join(f"-d tcp.port=={port},mqtt" for port in others)
            click.echo(f"Open it with: wireshark {known} FILE", err=True)
