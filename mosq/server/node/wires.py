"""The addresses at which the workers of a cluster reach each other. A worker listens on the port of its node plus its
number from 0, so nothing is handed over inside a node (docs/adr/0042)."""

import ipaddress
import os
import socket
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.cluster.address import Address
    from mosq.server.workers.wired import Wired


class Wires(NamedTuple):
    """The parameters of a node for the connections between workers. `cluster`: the id of the cluster; `host`: a number,
    not a name."""

    cluster: str
    secret: bytes
    host: str
    port: int

    def wired(self, place: int, token: int, n: int) -> "Wired":
        """Return the connections of one worker of n, which listens from now on. Raises OSError."""
        from mosq.cluster.reach import listen
        from mosq.cluster.wires import Own
        from mosq.server.workers.wired import Wired

        port = self.port + place
        try:
            listening = listen(self.host, port)
        except OSError as error:
            raise OSError(f"Unable to listen on {self.host} port {port} for other workers (cluster_listener): "
                          f"{os.strerror(error.errno or 0)}. Each worker needs a port of its own: from {self.port} to "
                          f"{self.port + n - 1}.") from None
        return Wired(Own(self.cluster, self.secret, place, token), listening, n)


def address_text(host: str, port: int) -> str:
    """Return the address that a node announces."""
    return f"{host} {port}"


def own_host(named: str, redis: "Address") -> str:
    """Return this node's address for other nodes, as a number. `named`: what the configuration has; without it, the
    address from which this machine reaches Redis. Raises gaierror if a name is not found, OSError if Redis has no
    route, and ValueError for an address that other nodes cannot use."""
    host = _number_of(named) if named else _towards(redis)
    at = ipaddress.ip_address(host.partition("%")[0])
    if at.is_unspecified:
        raise ValueError(f"{host} is not an address of this node, but stands for all of them")
    if at.is_loopback and not named:
        raise ValueError(f"this machine reaches Redis from {host}, which no other machine can reach")
    return host


def _number_of(name: str) -> str:
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


def _towards(redis: "Address") -> str:
    """Return the address from which this machine reaches the first host of Redis that has a route."""
    failed = OSError()
    for host, port in redis.hosts:
        try:
            family, kind, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(at)           # sends nothing
                return str(probe.getsockname()[0])
        except OSError as error:
            failed = error
    raise failed
