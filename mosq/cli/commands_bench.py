"""Define `mosq bench SCENARIO`: its options, and the output of its results.

Each scenario has the options that it uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from mosq.tools.bench import parquet
from mosq.tools.bench.html.command import report
from mosq.tools.bench.report import Progress, lines
from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import OF_RELAY, STAMP_BYTES, BenchError, Spec
from mosq.tools.bench.topics import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from mosq.tools.bench.result import Result

    Command = Callable[..., Any]

EXIT_OK, EXIT_FAILED, EXIT_NOT_EXACT, EXIT_USAGE = 0, 1, 2, 3
INFLIGHT_MAX = 10_000
SIZE_MAX = 200_000_000
PREFIX_MAX = 1000
TEXT_MAX = 65_000               # most bytes of a text, with the digits of %i
SECONDS_MAX = 86_400            # most seconds: the time in a payload has 48 bits, which are 78 hours
EPILOG = """\b
Examples:
  mosq bench fan-in --start                         a fresh mosq, 50 publishers, 1 subscriber
  mosq bench pairs -h broker.example --qos 1 --seconds 30
  mosq bench pairs --rate 20000 --broker-pid $(pidof mosquitto)     latency at a fixed rate
  mosq bench fan-out --subscribers 1000 --json out.json --parquet out.parquet
  mosq bench pairs --relay                          the least cost of this load
  mosq bench storm --clients 5000 -u 'user%i' -P secret
  mosq bench report results                         a page of the results in a folder

\b
Without --rate, publishing pauses while --window deliveries are on their way, so that no message
need be lost. With --rate, a latency counts from the time at which the message was due (no
coordinated omission). All options: docs/bench.md.

\b
Exit status:
  0  complete, and every message came once, in order
  1  not complete: no broker, a refused login, or a broker that went away; measurements are kept
  2  complete, but messages were lost, doubled, out of order, refused or never sent
  3  an error in the command line
"""


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """Parse a number of bytes such as 64, 10k or 1M."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, factor = str(value), 1
        if number[-1:].lower() in ("k", "m"):
            factor = {"k": 1000, "m": 1_000_000}[number[-1].lower()]
            number = number[:-1]
        if not (number.isascii() and number.isdigit()) or not STAMP_BYTES <= int(number) * factor <= SIZE_MAX:
            self.fail(f"expected {STAMP_BYTES} to 200M bytes, such as 64, 10k or 1M; got {value!r}.", param, ctx)
        return int(number) * factor


class Sizes(click.ParamType):  # type: ignore[type-arg]
    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(Bytes().convert(one.strip(), param, ctx) for one in str(value).split(","))


class Version(click.ParamType):  # type: ignore[type-arg]
    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        known = {"3.1.1": 4, "311": 4, "4": 4, "5": 5, "5.0": 5}
        if str(value) not in known:
            self.fail(f"expected 3.1.1 or 5; got {value!r}.", param, ctx)
        return known[str(value)]


def count(least: int = 1, most: int = 1_000_000) -> click.IntRange:
    return click.IntRange(least, most)


def options(*these: Command) -> Callable[[Command], Command]:
    def put(command: Command) -> Command:
        for one in reversed(these):
            command = one(command)
        return command

    return put


option = click.option
WHERE = options(
    option("-h", "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Host of the broker."),
    option("-p", "--port", metavar="PORT", type=click.IntRange(1, 65535),
           help="Port of the broker.  [default: 1883, with TLS 8883]"),
    option("-u", "--username", metavar="USER", help="User name; %i stands for the client's number."),
    option("-P", "--password", metavar="PASSWORD", envvar="MOSQ_BENCH_PASSWORD",
           help="Password; %i stands for the client's number.  [env: MOSQ_BENCH_PASSWORD]"),
    option("-V", "--mqtt", "version", default="3.1.1", show_default=True, metavar="3.1.1|5", type=Version(),
           help="Version of MQTT."),
    option("--start", is_flag=True, help="Start a fresh mosq for this run; do not combine with --host and --port."),
    option("--relay", is_flag=True, help="Start the relay instead, the least that a broker can cost."),
    option("--broker-pid", metavar="PID", type=click.IntRange(1),
           help="Process of the broker, to report its CPU and memory."))
TRANSPORT = options(
    option("--tls", is_flag=True, help="Use TLS; with --start the broker gets a certificate."),
    option("--cafile", metavar="FILE", help="Trusted CAs (PEM), else those of the system; implies --tls."),
    option("--cert", metavar="FILE", help="Certificate of the clients (PEM)."),
    option("--key", metavar="FILE", help="Private key of --cert (PEM)."),
    option("--insecure", is_flag=True, help="Accept any certificate of the broker."),
    option("--servername", metavar="NAME", help="Expected name in the certificate, if not HOST."),
    option("--psk", metavar="HEX", envvar="MOSQ_BENCH_PSK",
           help="Pre-shared key instead of certificates.  [env: MOSQ_BENCH_PSK]"),
    option("--psk-identity", metavar="NAME", help="Identity of --psk."),
    option("--ws", is_flag=True, help="Use WebSockets, with or without TLS."),
    option("--ws-path", default="/mqtt", show_default=True, metavar="PATH", help="Path of the WebSocket request."))
HOW = options(
    option("--stall", default=3.0, show_default=True, metavar="SECONDS", type=click.FloatRange(0.05, 3600),
           help="End the run if nothing happens for so long."),
    option("--prefix", default="bench", show_default=True, metavar="TEXT", help="Prefix of topics and client ids."),
    option("--pending", default=64, show_default=True, metavar="N", type=count(), help="Concurrent handshakes."),
    option("--cpu", metavar="N", type=click.IntRange(0), help="Pin the generator to this core."),
    option("--broker-cpu", metavar="N", type=click.IntRange(0), help="Pin the broker of --start to this core."))
OUT = options(
    option("--json", "json_file", metavar="FILE", help="Write the result as JSON; -: to standard output."),
    option("--parquet", "parquet_file", metavar="FILE",
           help="Write a row for each phase; needs the extra bench (pyarrow)."),
    option("--name", default="", metavar="TEXT", help="Name of the run in its files."),
    option("-q", "--quiet", is_flag=True, help="Print no summary."))
FLOW = options(
    option("--qos", default=0, show_default=True, metavar="0|1|2", type=click.IntRange(0, 2)),
    option("--size", default="64", show_default=True, metavar="BYTES", type=Bytes(),
           help="Size of a payload: 64, 10k, 1M."),
    option("--inflight", default=20, show_default=True, metavar="N", type=count(1, INFLIGHT_MAX),
           help="Unacknowledged QoS 1 and 2 messages of one publisher."),
    option("--rate", default=0.0, metavar="N", type=click.FloatRange(0, 1e8),
           help="Messages a second of all publishers together; 0: no limit."))
SESSION = option("--session", is_flag=True,
                 help="Use sessions that outlive connections (clean 0); they are removed at the end.")
TIMED = options(
    option("--seconds", default=5.0, show_default=True, metavar="S", type=click.FloatRange(0.01, SECONDS_MAX),
           help="Duration of publishing, at most a day."),
    option("--warmup", default=0.5, show_default=True, metavar="S", type=click.FloatRange(0, 1e4),
           help="Duration of the unmeasured start."),
    option("--messages", default=0, metavar="N", type=click.IntRange(0, 2**31),
           help="Publish so many messages in all instead, without a warm-up."),
    option("--burst", default=10, show_default=True, metavar="N", type=count(1, 10_000),
           help="Messages of one send without --rate."))


def window(default: int) -> Command:
    return option("--window", default=default, show_default=True, metavar="N", type=click.IntRange(0, 2**31),
                  help="Most deliveries on their way without --rate; 0: no limit.")


def publishers(default: int, help: str = "Number of publishing clients.") -> Command:
    return option("--publishers", default=default, show_default=True, metavar="N", type=count(), help=help)


def subscribers(default: int) -> Command:
    return option("--subscribers", default=default, show_default=True, metavar="N", type=count(),
                  help="Number of receiving clients.")


def clients(default: int) -> Command:
    return option("--clients", default=default, show_default=True, metavar="N", type=count(), help="Connected clients.")


FILTERS = options(
    option("--filters", default=100_000, show_default=True, metavar="N", type=count(1, 10_000_000),
           help="Number of filters of all clients together."),
    option("--kind", default="mix", show_default=True, metavar="|".join(KINDS), type=click.Choice(KINDS),
           help="Filters without wildcards, with +, with #, or a mix of 6:3:1."))
KEEP = option("--keep", is_flag=True, help="Leave stored messages and sessions at the broker.")


@click.group(epilog=EPILOG, no_args_is_help=False,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def bench() -> None:
    """Put load on any broker, and measure every message: rates, latencies, CPU and memory of the broker's process, and
    all lost, duplicate or disordered messages.
    """


def scenario(name: str, help: str, *these: Command) -> None:
    def run(**given: Any) -> int:
        return perform(name, given)

    command = options(WHERE, TRANSPORT, *these, HOW, OUT)(run)
    bench.command(name, help=help)(command)


scenario("fan-in", "Many publishers, few subscribers to all topics.", publishers(50), subscribers(1), FLOW, TIMED,
         window(10_000), SESSION)
scenario("fan-out", "Few publishers, many subscribers to one topic.", publishers(1), subscribers(1000), FLOW, TIMED,
         window(20_000), SESSION)
scenario("pairs", "Each publisher has its own topic and subscriber.", publishers(100, "Number of pairs."), FLOW, TIMED,
         window(10_000), SESSION)
scenario("shared", "Many publishers, one shared group.", publishers(50), subscribers(10), FLOW, TIMED, window(10_000),
         SESSION)
scenario("connect", "Idle clients: the cost of connecting, and their memory.", clients(1000),
         option("--hold", default=1.0, show_default=True, metavar="S", type=click.FloatRange(0, 1e6),
                help="Seconds that they stay connected."))
scenario("storm", "All clients connect at once, with logins, and leave; repeatedly.", clients(1000),
         option("--rounds", default=3, show_default=True, metavar="N", type=count(1, 10_000), help="Repetitions."))
scenario("offline", "Messages for offline clients, which then come back.", clients(100), publishers(10),
         option("--messages", default=500, show_default=True, metavar="N", type=count(),
                help="Messages for each client."), FLOW, KEEP)
scenario("subscribe", "Filters: the cost of subscribing, and their memory.", clients(100), FILTERS,
         option("--inflight", default=20, show_default=True, metavar="N", type=count(1, INFLIGHT_MAX),
                help="Unacknowledged SUBSCRIBEs of one client."))
scenario("match", "Many filters, then messages that match some of them.", clients(100), publishers(10), FILTERS,
         option("--topics", default=100_000, show_default=True, metavar="N", type=count(1, 10_000_000),
                help="Most topics to publish on, drawn from those that match."),
         FLOW, TIMED, window(10_000))
scenario("retained", "Retained messages: stored, then fetched by a new subscriber.", publishers(10),
         option("--topics", default=100_000, show_default=True, metavar="N", type=count(1, 10_000_000),
                help="Number of topics with a retained message."),
         FLOW, KEEP)
scenario("payloads", "Fan-in with one size of payload after the other.", publishers(10), subscribers(1),
         option("--sizes", default="64,1k,16k,256k,1M", show_default=True, metavar="LIST", type=Sizes(),
                help="Sizes of payloads."),
         FLOW, TIMED, window(10_000))

bench.add_command(report)


@bench.command("relay", help="Run the relay alone: it copies messages and does nothing else.")
@option("-p", "--port", default=1883, show_default=True, metavar="PORT", type=click.IntRange(1, 65535),
        help="Port of the relay, on 127.0.0.1.")
def relay_command(port: int) -> int:
    from mosq.tools.bench.started import serve_relay

    try:
        serve_relay(port)
    except BenchError as error:
        click.echo(f"Error: {error}", err=True)
    return EXIT_FAILED


# ---------------------------------------------------------------- one run

def perform(name: str, given: dict[str, Any]) -> int:
    cpu, broker_cpu = given.pop("cpu"), given.pop("broker_cpu")
    start = _start(name, given)
    json_file, parquet_file, quiet = given.pop("json_file"), given.pop("parquet_file"), given.pop("quiet")
    progress = Progress(not quiet)
    _texts(given)
    _transport(given)
    if broker_cpu is not None and (not start or broker_cpu == cpu):
        raise click.UsageError("--broker-cpu: expected --start or --relay, and another core than --cpu.")
    try:
        if parquet_file is not None:
            parquet.check()
        for file in (json_file, parquet_file):
            _writable(file)
        with _terminated(), _place(start, broker_cpu, given) as place:
            if cpu is not None:
                _pin(cpu)                       # not before: the broker of --start would inherit the core
            result = measure(Spec(name, **{**given, **place}), progress)
        progress.end()
        if not quiet:
            for line in lines(result):
                click.echo(line, err=json_file == "-")
        if not result.complete:
            kept = "; the measurements until then are kept, and marked" if result.phases else ""
            click.echo(f"Error: not complete: {result.why}{kept}", err=True)
        _write(result, json_file, parquet_file)
    except BenchError as error:
        progress.end()
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:                   # before a measurement, or a second Ctrl-C
        progress.end()
        click.echo("Error: interrupted", err=True)
        return EXIT_FAILED
    return EXIT_FAILED if not result.complete else EXIT_OK if result.exact else EXIT_NOT_EXACT


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: measurements are kept, and the broker of --start ends."""
    def interrupt(number: int, frame: FrameType | None) -> None:
        if _imports(frame):     # Python ignores an exception in the callbacks of an import: try again soon
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)       # the rest takes some time, and ends by itself
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported at this moment."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _start(name: str, given: dict[str, Any]) -> str:
    """Take --start and --relay from the options; return the one that was given, or "". Raises UsageError."""
    chosen = [option for option in ("start", "relay") if given.pop(option)]
    if not chosen:
        return ""
    start = chosen[0]
    if len(chosen) > 1:
        raise click.UsageError("--start and --relay: expected one of them.")
    source_of = click.get_current_context().get_parameter_source
    for option in ("host", "port"):
        if source_of(option) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{start} and --{option}: expected one of them.")
    for option in ("broker_pid", "cafile", "cert", "psk", "servername"):
        if given[option] is not None:
            raise click.UsageError(f"--{start} and --{option.replace('_', '-')}: expected one of them.")
    if start == "relay":
        if name not in OF_RELAY:
            raise click.UsageError(f"--relay: expected one of {', '.join(OF_RELAY)}; the relay cannot do {name}.")
        if given["tls"] or given["ws"]:
            raise click.UsageError("--relay: expected plain TCP, without --tls and --ws.")
    return start


@contextlib.contextmanager
def _place(start: str, broker_cpu: int | None, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not start:
        yield {}
        return
    from mosq.tools.bench.started import broker, relay

    with relay(broker_cpu) if start == "relay" else broker(broker_cpu, tls=given["tls"], ws=given["ws"]) as place:
        yield place


def _texts(given: dict[str, Any]) -> None:
    """Check texts for packets: UTF-8 that fits, and a prefix that may begin a topic [v5 1.5.4, 4.7]."""
    for name in ("prefix", "username", "password", "name"):
        text, most = given[name], PREFIX_MAX if name == "prefix" else TEXT_MAX
        try:
            size = len((text or "").encode())
        except UnicodeEncodeError:
            raise click.UsageError(f"--{name}: expected UTF-8.") from None
        if size > most or "\0" in (text or ""):
            raise click.UsageError(f"--{name}: expected at most {most:,} bytes, none of them zero.")
    if "+" in given["prefix"] or "#" in given["prefix"] or given["prefix"].startswith("$"):
        raise click.UsageError("--prefix: topics begin with it: expected no + and no #, and no leading $.")


def _writable(file: str | None) -> None:
    """Raise BenchError before the run if a file cannot be written after it."""
    if file is None or file == "-":
        return
    folder = os.path.dirname(file) or "."
    if os.path.isdir(file) or not os.access(file if os.path.exists(file) else folder, os.W_OK):
        raise BenchError(f"cannot write {file}: expected a file in an existing folder with write permission")


def _transport(given: dict[str, Any]) -> None:
    """Check the options that belong together, and set the defaults that depend on others."""
    for one, other in (("cert", "key"), ("psk", "psk_identity")):
        if (given[one] is None) != (given[other] is None):
            raise click.UsageError(f"--{one} and --{other.replace('_', '-')} go together.")
    if given["psk"] is not None and (given["cafile"] is not None or given["cert"] is not None):
        raise click.UsageError("--psk and certificates: expected one of them.")
    if not given["ws_path"].startswith("/") or not given["ws_path"].isascii() or not given["ws_path"].isprintable() \
            or " " in given["ws_path"]:
        raise click.UsageError("--ws-path: expected a path, such as /mqtt.")
    given["tls"] = given["tls"] or any(given[name] for name in ("cafile", "cert", "insecure", "servername", "psk"))
    if given["port"] is None:
        given["port"] = 8883 if given["tls"] else 1883


def _pin(cpu: int) -> None:
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        raise BenchError(f"there is no core {cpu} for this process") from None


def _write(result: Result, json_file: str | None, parquet_file: str | None) -> None:
    if json_file is not None:
        text = json.dumps(result.as_dict(), ensure_ascii=False, indent=1)
        if json_file == "-":
            sys.stdout.write(text + "\n")
        else:
            try:
                with open(json_file, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
            except OSError as error:
                raise BenchError(f"cannot write {json_file}: {error.strerror}") from None
    if parquet_file is not None:
        parquet.write(result, parquet_file)
