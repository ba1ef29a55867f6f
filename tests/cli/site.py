"""Run a broker and its clients, for the effects of options: see test_effects.py."""

import signal
import socket
import time
from collections.abc import Callable

from mosq.auth.hashes import PBKDF2, new_hash
from tests.cli.certified import site_files
from tests.harness.broker import Broker, free_port
from tests.harness.packets import Connack, Connect, Publish, Received, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

RULES = "topic read news/#\ntopic write inbox/#\nuser ann\ntopic ann/#\n"
# an option whose only effect is a warning, the last line of a reload
MARK, MARKED = "\nretry_interval 1\n", "'retry_interval' option"


class Site(Broker):
    """Run a broker with a second port, a folder conf.d, and clients that it closes at the end."""

    SECOND = "\n-- log2 --\n"

    def __init__(self, lines: str) -> None:
        self.other = free_port()
        self.opened: list[Wire] = []
        self.mark = 0                   # length of the log at the reload
        self.two = "{other}" in lines
        super().__init__(lines.replace("{other}", str(self.other)),
                         {"acl": RULES, "passwd": f"ann:{new_hash(PBKDF2, b'secret', 10)}\n", **site_files(lines)})
        (self.dir / "conf.d").mkdir()
        (self.dir / "conf.d/x.conf").write_text("max_keepalive 9\n")

    def start(self) -> Broker:
        super().start()
        while self.two:                 # the second port opens after the first, for which start() waits
            try:
                socket.create_connection(("127.0.0.1", self.other), timeout=1).close()
                break
            except ConnectionRefusedError:
                assert self.alive(), self.log()
                time.sleep(0.002)
        return self

    def reload(self, lines: str) -> None:
        """Reload the configuration; return when the new one is in force."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:     # behind that by which the harness noticed the listener
            place = f":{probe.getsockname()[1]}"
            probe.sendall(b"\x10")
        self._await(lambda: any(place in line and ("disconnected" in line or "rejected" in line) for line in self.log().splitlines()))
        self.mark = len(self.log())
        for name, content in site_files(lines).items():
            (self.dir / name).write_text(content)
        if "listener" not in lines:
            lines = "listener {port} 127.0.0.1\nallow_anonymous true\n" + lines
        for name, value in (("port", self.port), ("other", self.other), ("dir", self.dir)):
            lines = lines.replace(f"{{{name}}}", str(value))
        self.config.write_text(lines + MARK)
        self.send_signal(signal.SIGHUP)
        self._await(lambda: MARKED in self.output())

    def _await(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not what():
            assert time.monotonic() < deadline and self.alive() and "not reloaded" not in self.output(), self.log()
            time.sleep(0.002)

    def output(self) -> str:
        """Return the log since the reload, and the second log."""
        second = self.dir / "log2"
        return self.log()[self.mark:] + self.SECOND + (second.read_text() if second.exists() else "")

    def wire(self, level: int = 5) -> Wire:
        self.opened.append(Wire(self.port, level))
        return self.opened[-1]

    def close(self) -> None:
        for client in self.opened:
            client.close()
        super().close()


class Client(Wire):
    """A client that connects at once."""

    def __init__(self, broker: Site, client_id: str = "c", *, level: int = 5, port: int = 0, **how: object) -> None:
        super().__init__(port or broker.port, level, tls=how.pop("tls", None))  # type: ignore[arg-type]
        broker.opened.append(self)
        self.send(Connect(client_id, **how))        # type: ignore[arg-type]
        packet = self.read_packet()
        assert isinstance(packet, Connack)
        self.connack = packet

    def property(self, name: P) -> object:
        return dict(self.connack.props).get(name)

    def subscribe(self, *filters: str, qos: int = 0) -> tuple[int, ...]:
        self.send(Subscribe(1, tuple((one, qos) for one in filters)))
        packet = self.read_packet()
        assert isinstance(packet, Suback)
        return packet.codes

    def ask(self, *packets: object) -> Received:
        self.send(*packets)                         # type: ignore[arg-type]
        return self.read_packet()

    def texts(self, n: int) -> list[bytes]:
        got = [self.read_packet() for _ in range(n)]
        return [packet.payload for packet in got if isinstance(packet, Publish)]


def refused(broker: Site, **how: object) -> int:
    """Return the reason code of a CONNACK; -1: closed without one."""
    client = broker.wire(int(how.pop("level", 5)))          # type: ignore[call-overload]
    client.send(Connect(str(how.pop("client_id", "r")), **how))     # type: ignore[arg-type]
    raw = client.read_frame()
    return -1 if raw is None else raw[3]


Check = Callable[[Site], bool]
