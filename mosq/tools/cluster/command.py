"""`mosq cluster`: create a cluster in Redis, show and check it, send a node away, and remove a dead one. Talks to
Redis, not to nodes."""

import time
from contextlib import closing, contextmanager
from itertools import count

import click

from mosq.cluster.errors import AwayError, RefusedError
from mosq.tools.table import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mosq.cluster.overview import Overview
    from mosq.cluster.registry import Facts, Registry
    from mosq.cluster.terms import Terms
    from mosq.tools.cluster.streams import Copied, StreamCopy

    Command = Callable[..., Any]

EXIT_OK, EXIT_TROUBLE, EXIT_CONFIG = 0, 1, 3

CREATE_EPILOG = """\b
Examples:
  mosq cluster create redis://redis.example --workers 6 --secret-file /etc/mosq/secret
  mosq cluster create redis://127.0.0.1 --workers 2 --lease 2        # for one node, without cluster_listener
  mosq cluster create redis+sentinel://s1,s2,s3/mosq --workers 12 --replicas 1 --password-file redis.password

\b
The number of workers, the lease and the replicas cannot be changed later. Take two or three times as
many workers as the nodes have processor cores that you begin with, so that the cluster can grow. All
servers of Redis must run: they are counted. The same command again notes a server that is new.

\b
Exit status:
  0  the cluster is there, also if it was there before with the same values
  1  Redis does not answer
  3  there is another cluster of this name, or the command line is wrong
"""
STATUS_EPILOG = """\b
Examples:
  mosq cluster status redis://redis.example --secret-file /etc/mosq/secret
  mosq cluster status redis://redis.example --json | jq '.trouble'

\b
Exit status:
  0  all workers serve clients on a living node, all links between them are open, and nothing needs
     attention
  1  something needs attention, as a worker that ends again and again, or Redis does not answer
  3  there is no such cluster, the secret is another one, or the command line is wrong
"""
CHECK_EPILOG = """\b
Examples:
  mosq cluster check redis://redis.example --secret-file /etc/mosq/secret
  mosq cluster check redis://redis.example --json | jq -r '.differences[]'

\b
It compares the nodes, the table of workers and the tokens; the heads, names and segments of the
stores; the routes and links that the workers have noted; and the version of the document of dynamic
security that each node uses. It changes nothing, and the cluster may serve. A difference is printed
only if it stands in two readings, some seconds apart.

\b
Exit status:
  0  there is no difference
  1  there are differences, or Redis does not answer
  3  there is no such cluster, the secret is another one, or the command line is wrong
"""
LEAVE_EPILOG = """\b
Examples:
  mosq cluster leave redis://redis.example node-b --secret-file /etc/mosq/secret

\b
NODE stops all its workers at once, and the other nodes start them. MQTT 5 clients of a worker that moves get
DISCONNECT 0x9C (use another server), with the cluster_reference of NODE if it has one; the connections
of other clients are closed. The process of NODE goes on without workers, and refuses connections, until
`mosq cluster join`, or until it is started again.

\b
Exit status:
  0  the node has no worker any more
  1  it still has some after --within seconds, or Redis does not answer
  3  there is no such node, no other node can take its workers, or the command line is wrong
"""
JOIN_EPILOG = """\b
Examples:
  mosq cluster join redis://redis.example node-b --secret-file /etc/mosq/secret

\b
The node gets its part of the workers again, one after another. A node that is not away is left as it is.
"""
FORGET_EPILOG = """\b
Examples:
  mosq cluster forget redis://redis.example node-b --secret-file /etc/mosq/secret

\b
Other nodes take the workers of a dead node by themselves. This command only removes its name.
A node that lives is not removed: SIGTERM lets it leave.
"""
WHERE_EPILOG = """\b
Examples:
  mosq cluster where redis://redis.example sensor-7 --secret-file /etc/mosq/secret
  mosq ctl -i ctl-3 broker getStats

\b
Most commands of `mosq ctl broker` are about the clients of all nodes. getStats and listDrops are about the
node of the client that asks, and `mosq index explain` about its worker. So a question about the worker of
CLIENT_ID needs a client id of the same worker, which this command prints.

\b
Exit status:
  0  the worker has a living node
  1  it has none, or Redis does not answer
  3  there is no such cluster, the secret is another one, or the command line is wrong
"""
STREAMS_EPILOG = """\b
Examples:
  mosq cluster streams redis://redis.example /srv/streams --secret-file /etc/mosq/secret
  mosq cluster streams redis://redis.example /srv/streams --once

\b
Spark, `mosq journal` and other readers of streams take FOLDER as the folder of a broker's streams. The
nodes keep in Redis the records that are not copied, or that a consumer of the copy has not done, within
retain_bytes. Two copies need different names (--as). `--forget` ends a copy: the nodes wait for it no
more.

\b
Exit status:
  0  --once or --forget: it is done
  1  Redis or the disk of FOLDER does not answer (without --once the command waits), or another process
     copies into FOLDER
  3  there is no such cluster, the secret is another one, or the command line is wrong
"""


def of_redis(command: "Command") -> "Command":
    """Add the argument and the options that say which cluster is meant."""
    for add in (
        click.option("--secret-file", type=click.Path(), metavar="FILE", help="File with the secret of the cluster, as "
                     "the option cluster_secret_file of its nodes."),
        click.option("--password-file", type=click.Path(), metavar="FILE", help="File whose first line is the password "
                     "of Redis."),
        click.option("--name", "cluster_name", default="mosq", show_default=True, metavar="NAME",
                     help="Name of the cluster, as the option cluster_name of its nodes."),
        click.argument("address"),
    ):
        command = add(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Create, watch and check a cluster: one broker whose workers run on several machines, with stores in Redis."""


@cluster.command(epilog=CREATE_EPILOG)
@of_redis
@click.option("--workers", required=True, type=click.IntRange(1, 64), help="Workers of all nodes together.")
@click.option("--lease", "lease_s", default=4.0, show_default=True, type=click.FloatRange(0.5, 600),
              metavar="SECONDS", help="A node that cannot reach Redis for so long ends its workers. Others start them "
              "after 1.5 times this.")
@click.option("--replicas", default=0, show_default=True, type=click.IntRange(0, 8),
              help="Replicas of Redis: so many must have a message before it is acknowledged. 1 with three servers "
              "of Redis, 2 with five.")
def create(                             # parameters: one for each option of the command
        address: str, cluster_name: str, password_file: str | None, secret_file: str | None, workers: int,
        lease_s: float, replicas: int) -> None:
    """Create a cluster in the Redis at ADDRESS. Nodes never do this by themselves."""
    from mosq.cluster.terms import Terms

    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        registry = place.registry(Terms(lease_s, lease_s / 2), replicas)
        for line in registry.check_server():
            click.echo(f"Warning: {line}", err=True)
        registry.create(workers)
        servers = registry.facts().servers
    if secret_file is None:
        click.echo("Warning: The cluster has no secret, and cannot get one later. Nodes with cluster_listener need "
                   "one: remove the cluster and create it again with --secret-file FILE.", err=True)
    confirm = f"{replicas} of {servers - 1} replicas of Redis confirm" if replicas else "no replica of Redis confirms"
    click.echo(f"The cluster {cluster_name} has {workers} workers and a lease of {lease_s:g} s, and {confirm} a "
               "message.")


@cluster.command(epilog=STATUS_EPILOG)
@of_redis
@click.option("--json", "as_json", is_flag=True, help="Print one object in JSON.")
@click.pass_context
def status(                             # parameters: one for each option of the command
        context: click.Context, /, address: str, cluster_name: str, password_file: str | None,
        secret_file: str | None, as_json: bool) -> None:
    """Show the nodes of the cluster in the Redis at ADDRESS, the node of each worker, and what needs attention."""
    from mosq.cluster.overview import OBSERVED_BEATS, overview_of, settled

    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        facts, registry = place.existing()
        warnings = registry.check_server(refuses=False)
        warnings += registry.damaged_stores(facts)
        announce(f"Watching the nodes for up to {OBSERVED_BEATS * facts.terms.beat_s:g} seconds.")
        view, alive, noted, used = settled(registry, facts, announce)
        found = overview_of(cluster_name, facts, view, alive, warnings + noted, used)
    if as_json:
        _print_json(found._asdict())
    else:
        _show(found)
    context.exit(EXIT_TROUBLE if found.trouble else EXIT_OK)


@cluster.command(epilog=CHECK_EPILOG)
@of_redis
@click.option("--json", "as_json", is_flag=True, help="Print one object in JSON.")
@click.pass_context
def check(                              # parameters: one for each option of the command
        context: click.Context, /, address: str, cluster_name: str, password_file: str | None,
        secret_file: str | None, as_json: bool) -> None:
    """Compare the table, the stores and the routes of the cluster in the Redis at ADDRESS. Changes nothing."""
    from mosq.tools.cluster.check import alive_of, standing

    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        facts, registry = place.existing()
        found = standing(registry, facts, cluster_name, alive_of(registry, facts.terms))
    if as_json:
        _print_json({"cluster": cluster_name, "workers": facts.workers, "differences": found})
    else:
        for line in found:
            click.echo(f"! {line}")
        click.echo(f"cluster {cluster_name}: {facts.workers} workers, "
                   f"{len(found) or 'no'} difference{'' if len(found) == 1 else 's'}")
    context.exit(EXIT_TROUBLE if found else EXIT_OK)


@cluster.command(epilog=LEAVE_EPILOG)
@of_redis
@click.argument("node")
@click.option("--within", "within_s", default=60.0, show_default=True, type=click.FloatRange(0, 3600),
              metavar="SECONDS", help="Time to wait until the node has no worker; 0 only asks for it.")
@click.pass_context
def leave(                              # parameters: one for each option of the command
        context: click.Context, /, address: str, cluster_name: str, password_file: str | None,
        secret_file: str | None, node: str, within_s: float) -> None:
    """Let NODE give its workers to the other nodes of the cluster in the Redis at ADDRESS, and run none."""
    from mosq.cluster.entries import entry_of
    from mosq.cluster.overview import observed, takers_of, view_of

    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        facts, registry = place.existing()
        view, alive = observed(registry, facts.terms)
        if node in view.beats and node not in alive:
            raise RefusedError(f"the node {node} gives no sign of life; the others take its workers by themselves")
        if not takers_of(view, alive) - {node}:
            raise RefusedError(f"no other living node can take the workers of {node}")
        _send(place, facts, registry, node, away=True)
        until_s = time.monotonic() + within_s
        while True:
            held = sorted(worker + 1 for worker, text in view_of(registry).workers.items()
                          if entry_of(text).name == node)
            if not held or time.monotonic() >= until_s:
                break
            time.sleep(facts.terms.beat_s / 2)
    if held and within_s:
        click.echo(f"Error: The node {node} still has {len(held)} workers: {', '.join(map(str, held))}.", err=True)
        context.exit(EXIT_TROUBLE)
    click.echo(f"The node {node} gives its workers away." if held else f"The node {node} has no worker.")


@cluster.command(epilog=JOIN_EPILOG)
@of_redis
@click.argument("node")
def join(address: str, cluster_name: str, password_file: str | None, secret_file: str | None, node: str) -> None:
    """Let NODE, which was sent away, have workers again in the cluster in the Redis at ADDRESS."""
    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        _send(place, *place.existing(), node, away=False)
    click.echo(f"The node {node} may have workers.")


@cluster.command(epilog=FORGET_EPILOG)
@of_redis
@click.argument("node")
def forget(address: str, cluster_name: str, password_file: str | None, secret_file: str | None, node: str) -> None:
    """Remove the name of a dead NODE from the cluster in the Redis at ADDRESS. Watches it for 1.5 leases first."""
    from mosq.cluster.entries import run_of
    from mosq.cluster.overview import beats_of
    from mosq.cluster.requests import CHANGED, DONE, Leave

    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        facts, registry = place.existing()
        beat = beats_of(registry).get(node)
        if beat is None:
            raise RefusedError(f"the cluster {cluster_name} has no node {node}")
        announce(f"Watching the node {node} for {facts.terms.death_s:g} seconds.")
        until_s = time.monotonic() + facts.terms.death_s
        while time.monotonic() < until_s:
            time.sleep(facts.terms.beat_s)
            if beats_of(registry).get(node, beat) != beat:
                raise RefusedError(f"the node {node} lives; SIGTERM lets it leave")
        status = place.opened(facts, node, run_of(beat)).ask(Leave(beat)).status
        if status == CHANGED:
            raise RefusedError(f"the node {node} has just come back; SIGTERM lets it leave")
        if status != DONE:
            raise AwayError("the cluster was removed from Redis, or created again")
    click.echo(f"The node {node} is forgotten.")


@cluster.command(epilog=WHERE_EPILOG)
@of_redis
@click.argument("client_id")
@click.pass_context
def where(                              # parameters: one for each option of the command
        context: click.Context, /, address: str, cluster_name: str, password_file: str | None,
        secret_file: str | None, client_id: str) -> None:
    """Show which worker and which node of the cluster in the Redis at ADDRESS have the client CLIENT_ID."""
    from mosq.cluster.overview import node_of
    from mosq.engine import worker_place

    if not client_id:
        raise click.UsageError("CLIENT_ID is empty. A client without an id gets one from the broker, which its "
                               "log line has.")
    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        facts, registry = place.existing()

        def worker_of(name: str) -> int:
            return worker_place(facts.key, name.encode(), facts.workers)

        worker = worker_of(client_id)
        node = node_of(registry, facts.terms, worker)
    beside = next(name for n in count(1) if worker_of(name := f"ctl-{n}") == worker)
    click.echo(f"{client_id}: worker {worker + 1}, {f'node {node}' if node else 'without a node'}. "
               f"A client with the id {beside} is at the same worker.")
    context.exit(EXIT_OK if node else EXIT_TROUBLE)


@cluster.command(epilog=STREAMS_EPILOG)
@of_redis
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--as", "name", default="copy", show_default=True, metavar="NAME", help="Name of this copy, which nodes "
              "know as a consumer.")
@click.option("--every", "pause_s", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600),
              metavar="SECONDS", help="Pause between two looks at Redis.")
@click.option("--once", is_flag=True, help="Copy the records that Redis has now, and then stop.")
@click.option("--forget", "forgets", is_flag=True, help="Copy nothing, and let the nodes wait for this copy no more.")
@click.pass_context
def streams(                            # parameters: one for each option of the command
        context: click.Context, /, address: str, cluster_name: str, password_file: str | None,
        secret_file: str | None, folder: str, name: str, pause_s: float, once: bool, forgets: bool) -> None:
    """Copy the streams of the cluster in the Redis at ADDRESS into FOLDER, and go on until it is ended."""
    from pathlib import Path

    from mosq.journal.stream import CONSUMER
    from mosq.tools.cluster.streams import CopyError, StreamCopy, forget

    if CONSUMER.fullmatch(name) is None:
        raise click.UsageError("--as expects 1 to 64 letters, digits, '-', '_' or '.', without a dot in front.")
    place = Place(address, cluster_name, password_file, secret_file)
    with answering():
        call, stores = place.stores()
    try:
        if forgets:
            click.echo(f"{forget(call, stores, name)} marks of the copy '{name}' are removed.")
            return
        with closing(StreamCopy(call, stores, Path(folder), name)) as copy:
            if once:
                _report_copied(copy.copy())
                return
            announce(f"Copying the streams of {len(stores)} workers into {folder}.")
            _copy_on(copy, pause_s)
    except (CopyError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        context.exit(EXIT_TROUBLE)


def _copy_on(copy: "StreamCopy", pause_s: float) -> None:
    """Copy until the process is ended. Report each fault once, until it is over."""
    shown: list[str] = []
    while True:
        try:
            trouble = _behind(copy.copy())
        except OSError as error:
            trouble = [str(error)]
        for line in trouble:
            if line not in shown:
                announce(f"Warning: {line}")
        if shown and not trouble:
            announce("The copy goes on.")
        shown = trouble
        time.sleep(pause_s)


def _behind(copied: "Copied") -> list[str]:
    return [f"Redis has less of the stream {part} than the copy, which waits until it has more." for part in
            copied.behind]


def _report_copied(copied: "Copied") -> None:
    for line in _behind(copied):
        click.echo(f"Warning: {line}", err=True)
    click.echo(f"{copied.n_bytes} bytes are copied.")


def _print_json(values: "dict[str, Any]") -> None:
    import json

    click.echo(json.dumps(values))


def _send(place: "Place", facts: "Facts", registry: "Registry", node: str, *, away: bool) -> None:
    """Send the present run of a node away, or let it come back. Raises RefusedError and AwayError."""
    from mosq.cluster.entries import run_of
    from mosq.cluster.overview import beats_of
    from mosq.cluster.requests import DONE, Send

    beat = beats_of(registry).get(node)
    if beat is None:
        raise RefusedError(f"the cluster has no node {node}")
    if place.opened(facts, node, run_of(beat)).ask(Send(away)).status != DONE:
        raise AwayError(f"the node {node} was started again or has left at this moment; try again")


class Place:
    """The cluster that the command line names."""

    def __init__(self, address: str, cluster_name: str, password_file: str | None, secret_file: str | None) -> None:
        from mosq.cluster.address import parse_address
        from mosq.cluster.entries import check_name
        from mosq.cluster.secret import read_secret

        try:
            self._cluster = check_name(cluster_name, "cluster")
            self._address = parse_address(address, password_file)
            self._secret = read_secret(secret_file) if secret_file is not None else b""
        except (ValueError, OSError) as error:
            raise click.UsageError(str(error)) from None
        if password_file is None and self._address.password is not None:
            click.echo("Warning: Other users of this machine can see the password in ADDRESS while the command runs; "
                       "use --password-file FILE.", err=True)

    def registry(self, terms: "Terms | None" = None, replicas: int = 0, name: str = "operator",
                 run: str = "operator") -> "Registry":
        """Return the data of the cluster, or of one that does not exist yet."""
        try:
            from mosq.cluster.registry import Registry
        except ImportError:
            from mosq.tools.extras import install_advice

            raise click.UsageError("`mosq cluster` needs the package redis. To install it: "
                                   f"{install_advice('cluster')}") from None
        from mosq.cluster.terms import Terms

        return Registry(self._address, self._cluster, name, run, terms or Terms(), replicas=replicas,
                        secret=self._secret)

    def stores(self) -> "tuple[Command, dict[int, str]]":
        """Return how a command is sent to Redis, with replies in bytes, and the stores by number of the worker. Raises
        RefusedError and AwayError."""
        from mosq.cluster.scripts import store_name

        if self._address.tls or self._address.path:
            raise click.UsageError("Expected redis:// or redis+sentinel://, as for a node.")
        facts, registry = self.existing()
        registry.close()
        try:
            from mosq._redis import RedisConnection
        except ImportError:
            raise click.UsageError("This build of mosq was made without hiredis, so it cannot read stores in "
                                   "Redis.") from None
        at = self._address
        connection = RedisConnection(at.hosts, at.master or None, at.user, at.password, database=at.db)
        return connection.call, {worker: store_name(self._cluster, facts.id, worker)
                                 for worker in range(1, facts.workers + 1)}

    def existing(self) -> "tuple[Facts, Registry]":
        """Return the values of the cluster, and its data with its own terms. Raises RefusedError and AwayError."""
        first = self.registry()
        facts = first.facts()
        first.close()
        return facts, self.opened(facts)

    def opened(self, facts: "Facts", name: str = "operator", run: str = "operator") -> "Registry":
        """Return the data of the cluster with its own terms. Raises RefusedError and AwayError."""
        found = self.registry(facts.terms, facts.replicas, name, run)
        found.open(facts.workers)
        return found


@contextmanager
def answering() -> "Iterator[None]":
    """End the command with a text if Redis does not answer, or the cluster is another one."""
    try:
        yield
    except AwayError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(EXIT_TROUBLE) from None
    except RefusedError as error:
        click.echo(f"Error: {str(error)[:1].upper()}{str(error)[1:]}.", err=True)
        raise click.exceptions.Exit(EXIT_CONFIG) from None


def announce(text: str) -> None:
    """Print a line before a wait, which takes minutes if the lease is long. It is no part of the result."""
    click.echo(text, err=True)


def _show(found: "Overview") -> None:
    click.echo(f"cluster {found.cluster}: {found.workers} workers, lease {found.lease_s:g} s, "
               f"{found.replicas} of {found.servers - 1} replicas confirm")
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "CAPACITY", "WORKERS", "VERSION", "DYNSEC", "ADDRESS")]
    for node in found.nodes:
        state = ("silent" if not node["alive"] else "away" if node["away"] else "leaves" if node["leaving"]
                 else "lives")
        workers = ",".join(map(str, node["workers"])) or "-"
        rows.append((node["name"], state, str(node["capacity"]), workers, node["version"],
                     node["dynsec_version"] or "-", node["address"] or "-"))
    for row in table(rows):
        click.echo(row)
    for line in found.trouble:
        click.echo(f"! {line}")
