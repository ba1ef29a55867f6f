"""`mosq signal`: sends signals as mosquitto_signal does. The names describe the effect; this module maps them to
signals."""

import os
import signal

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

SIGNALS = {"config-reload": signal.SIGHUP, "log-rotate": signal.SIGRTMIN, "shutdown": signal.SIGINT,
           "tree-print": signal.SIGUSR2, "xtreport": signal.SIGUSR2}
EXIT_FAILED = 1

EPILOG = """\b
Signals:
  config-reload   read the configuration again
  log-rotate      close and open the log files again, after they were renamed
  shutdown        stop
  tree-print      print the subscriptions to the broker's stdout
  xtreport        the same: mosq has no report for kcachegrind

\b
Examples:
  mosq signal -a config-reload
  mosq signal -p "$(cat /run/mosquitto/mosquitto.pid)" log-rotate

\b
Exit status:
  0  each signal was sent
  1  no such process, not allowed, or no broker found
  3  error in the command line
"""


@click.command("signal", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-a", "to_all", is_flag=True, help="Send the signal to all mosq brokers on this machine.")
@click.option("-p", "pid", type=click.IntRange(1), metavar="PID", help="Send the signal to the process with this id.")
@click.argument("name", metavar="SIGNAL", type=click.Choice(list(SIGNALS)))
def signal_command(to_all: bool, pid: int | None, name: str) -> int:
    """Send a signal to a running broker."""
    if to_all == (pid is not None):
        raise click.UsageError("Expected either `-a` or `-p PID`.")
    root = click.get_current_context().find_root().command
    subcommands = root.commands if isinstance(root, click.Group) else {}
    pids = [pid] if pid is not None else list(brokers(subcommands))
    if not pids:
        click.echo("Error: No running mosq found.", err=True)
        return EXIT_FAILED
    status = 0
    for one in pids:
        try:
            os.kill(one, SIGNALS[name])
        except (OSError, OverflowError) as error:
            click.echo(f"Error: Process {one}: {getattr(error, 'strerror', error)}.", err=True)
            status = EXIT_FAILED
    return status


def brokers(subcommands: "Container[str]", proc: str = "/proc") -> "Iterator[int]":
    """Yield the processes whose command line starts mosq as a broker: `mosq ...` or `python -m mosq ...` without a
    subcommand."""
    for entry in os.listdir(proc):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"{proc}/{entry}/cmdline", "rb") as file:
                words = file.read(4096).split(b"\0")[:-1]
        except OSError:
            continue
        if is_broker([word.decode("utf-8", "replace") for word in words], subcommands):
            yield int(entry)


def is_broker(words: list[str], subcommands: "Container[str]") -> bool:
    """Return whether a command line starts a broker: no word of it is one of the subcommands of `mosq`."""
    if words and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in ("-X", "-W") else 1:]
            if words and os.path.basename(words[0]) == "mosq":
                break
    if not words or os.path.basename(words[0]) not in ("mosq", "mosq-broker"):
        return False
    return not any(word in subcommands for word in words[1:])
