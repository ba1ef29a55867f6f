"""Test that bytes between workers are counted apart from the traffic of clients."""

from __future__ import annotations

import http.client

from tests.harness.broker import free_port
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.workers.case import accepted
from tests.workers.test_tls import CONFIG, broker_of, wire

SIZE = 20_000
OTHERS = 2_000                  # of the packets beside the payloads
HTTP = "listener {web} 127.0.0.1\nprotocol http_api\nhttp_metrics true\n"


def counted(web: int) -> tuple[int, int, int, int]:
    """Return the bytes that were received and sent, of clients and of other workers."""
    connection = http.client.HTTPConnection("127.0.0.1", web, timeout=20)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    received, sent, links_received, links_sent = (int(float(values[f"mosq_{name}_bytes_total"])) for name in (
        "network_received", "network_sent", "links_received", "links_sent"))
    return received, sent, links_received, links_sent


def test_bytes_of_links_and_relayed_connections_are_no_traffic_of_clients() -> None:
    web = free_port()
    with broker_of(CONFIG + HTTP.replace("{web}", str(web))) as broker:
        assert counted(web)[:2] == (0, 0) and min(counted(web)[2:]) > 0       # the links are open
        reader = wire(broker)
        reader.send(Connect("reader"), Subscribe(1, (("#", 0),)))
        accepted(reader)
        assert isinstance(reader.read_packet(), Suback)
        before = counted(web)
        for i in range(9):      # dealt out in turns, so most of them are relayed to the worker of their client id
            client = wire(broker)
            client.send(Connect(f"tls{i}"), Publish(f"tls/{i}", bytes(SIZE), 1, 9))
            accepted(client)
            assert isinstance(client.read_packet(), Puback) and isinstance(reader.read_packet(), Publish)
        received, sent, links_received, links_sent = (now - then for now, then in zip(counted(web), before, strict=True))
        assert 9 * SIZE < received < 9 * SIZE + OTHERS and 9 * SIZE < sent < 9 * SIZE + OTHERS
        assert links_received >= 2 * SIZE and links_sent >= 2 * SIZE
