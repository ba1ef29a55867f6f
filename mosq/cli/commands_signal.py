"""`mosq signal` and `mosq upgrade`: send signals to running brokers, the first as mosquitto_signal does. The names
describe the effect; this module maps them to signals."""

import os
import select
import signal
import socket
import time

import click

from mosq.server.signals import UPGRADE
from mosq.server.upgrade.channel import REASON_MAX, REASON_NAME, peer_of, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

SIGNALS = {"config-reload": signal.SIGHUP, "log-rotate": signal.SIGRTMIN, "shutdown": signal.SIGINT,
           "tree-print": signal.SIGUSR2, "xtreport": signal.SIGUSR2}
EXIT_FAILED = 1
WAIT_S = 15.0                   # the broker gives up after 10 s
CHILD_S = 3.0                   # time in which the broker starts the new program
LOOK_S = 0.02
REASON_S = 0.5                  # from the end of the new program to the reason
WORKER_NAME = "mosq: worker "   # workers/parent.py names them so

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


# ---- mosq upgrade

UPGRADE_EPILOG = """\b
The broker starts the program with which it was started, from the same files, with the same
arguments. The new process reads the configuration, takes over the listening sockets, the
connections, the sessions and the store, and the old one ends. If the new process does not
report within 10 seconds that it has everything, the old one goes on as if nothing had happened.
The log has the numbers, or the reason, which this command prints, too.

\b
Connections over TCP, unix sockets and WebSockets move, and those with TLS whose listener has
tls_compact_records. Other connections with TLS, bridges and the HTTP API do not: they are
closed, 5.0 clients with the reason "server shutting down" (0x8B), and connect again, with TLS
by their session tickets. docs/operations.md has all cases.

\b
Examples:
  mosq upgrade                                    the only broker on this machine
  mosq upgrade -p "$(cat /run/mosquitto/mosquitto.pid)"
  mosq upgrade || systemctl restart mosq          after an installation and --test-config

\b
Exit status:
  0  a new process has taken over
  1  the old process goes on or was stopped, or there is no such broker; its log has the reason
  3  error in the command line
"""


@click.command("upgrade", epilog=UPGRADE_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-p", "pid", type=click.IntRange(1), metavar="PID",
              help="The broker with this process id.  [default: the only one]")
def upgrade(pid: int | None) -> int:
    """Replace a running broker by the installed version, without dropping a connection."""
    if pid is None:
        root = click.get_current_context().find_root().command
        found = list(brokers(root.commands if isinstance(root, click.Group) else {}))
        if len(found) != 1:
            which = f" ({', '.join(map(str, sorted(found)))})" if found else ""
            click.echo(f"Error: {len(found)} running brokers found{which}. Expected one, or `-p PID`.", err=True)
            return EXIT_FAILED
        pid = found[0]
    with Reason(pid) as reason:
        why = ask(pid)
        if not why and has_workers(pid):
            why = "it has workers (cluster_local), which cannot be upgraded while they run; restart it"
        if why:
            click.echo(f"Error: Process {pid}: {why}.", err=True)
            return EXIT_FAILED
        new = wait(pid)
        if new <= 0:
            what = "has ended, and no process that has taken over is known" if new else "goes on"
            text = reason.text()
            click.echo(f"Error: Process {pid} {what}{f': {text}' if text else '; its log has the reason'}.", err=True)
            return EXIT_FAILED
    click.echo(f"Process {new} has taken over from process {pid}.")
    return 0


class Reason:
    """`with Reason(pid) as reason:` receives the reason from a broker whose upgrade fails."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> "Reason":
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(REASON_S)
        try:
            self._socket.bind(REASON_NAME.format(self._pid))
            self._socket.listen(1)
        except OSError:
            pass                        # another command has the name: `text` finds nothing
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def text(self) -> str:
        """Return the reason; "" if the broker has sent none."""
        try:
            peer, _ = self._socket.accept()
            with peer:
                peer.settimeout(REASON_S)
                is_broker = peer_of(peer)[0] == self._pid
                return printable(peer.recv(REASON_MAX).decode("utf-8", "replace")) if is_broker else ""
        except OSError:
            return ""


def ask(pid: int) -> str:
    """Send the signal; return why that is not possible, or "". It would end a process that does not handle it."""
    try:
        with open(f"/proc/{pid}/status") as file:
            handled = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
        if not int(handled, 16) >> (UPGRADE - 1) & 1:
            return "it is no broker that can be upgraded while it runs"
        os.kill(pid, UPGRADE)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def has_workers(pid: int) -> bool:
    """Return whether the process is the parent of workers, or one of them; its log has the refusal too."""
    return any(name_of(one).startswith(WORKER_NAME) for one in (pid, *children(pid)))


def name_of(pid: int) -> str:
    """Return the name of a process, or "" if it has ended."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read()
    except OSError:
        return ""


def wait(pid: int) -> int:
    """Return the process that took over from `pid`, 0 if that process goes on, or -1 if it has ended and this command
    knows no other."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        return _wait(pid, handle)
    finally:
        os.close(handle)


def _wait(pid: int, handle: int) -> int:
    begun = time.monotonic()
    new = 0
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    while time.monotonic() - begun < WAIT_S:
        present = [child for child in children(pid) if is_successor(child)]
        if not new and present:
            new = present[0]
        if ended.poll(1000 * LOOK_S):
            return new if new and is_successor(new) else -1
        if new and new not in present:
            return 0 if not ended.poll(1000 * LOOK_S) else -1
        if not new and time.monotonic() - begun > CHILD_S:
            return 0
    return 0


def is_successor(pid: int) -> bool:
    """Return whether the process was started to take over."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0MOSQ_UPGRADE_FD=" in b"\0" + file.read()
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []
