"""Test the network of the chaos runs: packets between machines, and each fault. Needs the right to make network namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.chaos.machines import Machine, Switch, machines_of
from tests.harness.namespaces import namespaces

pytestmark = pytest.mark.part("redis")

ECHO = "import socket,sys; s=socket.socket(type=socket.SOCK_DGRAM); s.bind((sys.argv[1],7)); print('ready',flush=True)\n" \
       "while 1: s.sendto(*s.recvfrom(9000))"
ASK = "import socket,sys,time; s=socket.socket(type=socket.SOCK_DGRAM); s.settimeout(float(sys.argv[3])); got=0; began=time.monotonic()\n" \
      "for n in range(int(sys.argv[2])):\n" \
      "  s.sendto(b'x'*100,(sys.argv[1],7))\n" \
      "  try: s.recv(9000); got+=1\n" \
      "  except TimeoutError: pass\n" \
      "print(got, time.monotonic()-began)"
SOON_S = 0.3                    # a packet that is cut or lost does not come at all; one that waits for a busy machine does


@pytest.fixture
def net() -> Iterator[tuple[Switch, list[Machine]]]:
    with namespaces("mqswitchx", 2) as (_, addresses, before):
        machines = machines_of(addresses, before)
        switch = Switch(machines)
        try:
            with subprocess.Popen([*machines[1].before, sys.executable, "-c", ECHO, machines[1].inner], stdout=subprocess.PIPE) as echo:
                try:
                    assert echo.stdout is not None and echo.stdout.readline() == b"ready\n"
                    yield switch, machines
                finally:
                    echo.kill()
        finally:
            switch.close()


def answers(machines: list[Machine], count: int = 1, timeout_s: float = 20.0) -> tuple[int, float]:
    """Return how many packets came back, and after how many seconds."""
    done = subprocess.run([*machines[0].before, sys.executable, "-c", ASK, machines[1].inner, str(count), str(timeout_s)], stdout=subprocess.PIPE, check=True)
    got, took_s = done.stdout.split()
    return int(got), float(took_s)


def test_packets_pass_and_can_be_cut_one_way_and_delayed(net: tuple[Switch, list[Machine]]) -> None:
    switch, machines = net
    a, b = (machine.number for machine in machines)
    assert answers(machines, 20)[0] == 20
    for cut in ((a, b), (b, a)):
        switch.rules([(*cut, True, 0.0, 0.0)])
        assert answers(machines, 3, SOON_S)[0] == 0
    switch.rules([(b, a, False, 0.0, 0.25)])
    got, took_s = answers(machines, 3)
    assert got == 3
    assert took_s >= 3 * 0.25
    switch.rules([])
    assert answers(machines, 20)[0] == 20


def test_some_packets_are_lost(net: tuple[Switch, list[Machine]]) -> None:
    switch, machines = net
    switch.rules([(machines[0].number, machines[1].number, False, 0.5, 0.0)])
    assert 0 < answers(machines, 20, SOON_S)[0] < 20
