"""Forward packets between the machines of a test; delay, lose or cut them on request. Not every kernel has netem, so a program does it.

    python -m tests.cluster.chaos.switch SPACE...

Each machine is a network namespace, and gets a TUN device. The last byte of an address is the number of the machine, from FIRST on.
A line on stdin is the list of all rules from now on, in JSON: [[from, to, cut, loss, delay in seconds], ...]. A pair without a rule
has none of it. A line on stdout answers each line, and one comes when the devices are there.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from typing import NamedTuple

from tests.harness.namespaces import must

NETWORK = "10.214.0"
FIRST = 2                       # number of the first machine
MTU = 9000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DESTINATION = 16                # of the address in a packet of IPv4
LENGTH_MIN = 20


class Rule(NamedTuple):
    cut: bool
    loss: float
    delay_s: float


def device_of(space: str) -> str:
    return f"{space}t"


def opened(space: str, number: int) -> int:
    """Make the device of a machine; return its descriptor. The device goes with the descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    device = device_of(space)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
    must("ip", "link", "set", device, "netns", space)
    must("ip", "-n", space, "addr", "add", f"{NETWORK}.{number}/24", "dev", device)
    must("ip", "-n", space, "link", "set", device, "mtu", str(MTU), "up")
    return fd


class Switch:
    def __init__(self, spaces: list[str]) -> None:
        self.devices = {number: opened(space, number) for number, space in enumerate(spaces, FIRST)}
        self.rules: dict[tuple[int, int], Rule] = {}
        self.later: list[tuple[float, int, int, bytes]] = []       # when, a number that keeps the order, to, packet
        self.number = 0
        self.random = random.Random(0)

    def take(self, sender: int) -> None:
        """Forward the packets that a machine has sent."""
        fd = self.devices[sender]
        while True:
            try:
                packet = os.read(fd, MTU + 100)
            except BlockingIOError:
                return
            if len(packet) < LENGTH_MIN or packet[0] >> 4 != 4:
                continue
            to = packet[DESTINATION + 3]
            if to not in self.devices:
                continue
            rule = self.rules.get((sender, to))
            if rule is None:
                self.send(to, packet)
            elif not rule.cut and (not rule.loss or self.random.random() >= rule.loss):
                self.number += 1
                heapq.heappush(self.later, (time.monotonic() + rule.delay_s, self.number, to, packet))

    def send(self, to: int, packet: bytes) -> None:
        try:
            os.write(self.devices[to], packet)
        except OSError:
            pass                        # its queue is full: a lost packet

    def run(self) -> None:
        poll = select.epoll()
        senders = {fd: number for number, fd in self.devices.items()}
        for fd in (*senders, sys.stdin.fileno()):
            poll.register(fd, select.EPOLLIN)
        print("ready", flush=True)
        while True:
            wait_s = self.later[0][0] - time.monotonic() if self.later else 1.0
            for fd, _ in poll.poll(max(wait_s, 0)):
                if fd in senders:
                    self.take(senders[fd])
                else:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self.rules = {(a, b): Rule(*rest) for a, b, *rest in json.loads(line)}
                    print("done", flush=True)
            now = time.monotonic()
            while self.later and self.later[0][0] <= now:
                _, _, to, packet = heapq.heappop(self.later)
                self.send(to, packet)


if __name__ == "__main__":
    Switch(sys.argv[1:]).run()
