"""Test faults of a disk and a clock for a broker with durable sessions: each has one outcome (docs/storage.md), and passes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.durable.test_restart import FOR_LONG, KEEP, Kept, nothing_more, offline_subscriber, publish, qos_0_continues, read_publishes, subscribe
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Pubrec, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

QUOTA = 0x97
FULL = "Error: the disk is full"
MIB = 1 << 20
DAY_MS = 24 * 3600 * 1000


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = f"mount -t tmpfs -o size=1m none {folder} && umount {folder}"
        return os.geteuid() == 0 and subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 0


def spare_written(folder: Path) -> None:
    """Wait for the spare segment, which a start writes after a while: without it messages in transit wait for room."""
    until(lambda: any(f.stat().st_size == 16 * MIB for f in folder.glob("*.store/segment.*")))


class Door:
    """Simulate a disk on which files cannot grow."""

    def __init__(self, faults: Faults) -> None:
        self.faults, self.dir, self.env = faults, "{dir}", faults.env

    def fill(self, broker: Kept) -> None:
        spare_written(broker.dir)
        self.faults.set(full=1)

    def empty(self) -> None:
        self.faults.set(full=0)


class Tmpfs:
    """Mount a small disk with a large file on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dir = folder, str(folder)
        self.env: dict[str, str] = {}

    def fill(self, broker: Kept) -> None:
        spare_written(self.folder)      # before the large file takes the rest of the room
        with (self.folder / "large").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def empty(self) -> None:
        (self.folder / "large").unlink()


@pytest.fixture(params=["door", "tmpfs"] if may_mount() else ["door"])
def disk(request: pytest.FixtureRequest, faults: Faults) -> Iterator[Door | Tmpfs]:
    if request.param == "door":
        yield Door(faults)
        return
    folder = Path(tempfile.mkdtemp(prefix="mosq-tmpfs-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=777", "none", folder], check=True)
    try:
        yield Tmpfs(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def refused(pub: Wire, mid: int = 100, most: int = 1000) -> int:
    """Publish until a QoS 1 message is refused; return how many were accepted."""
    for n in range(most):
        pub.send(Publish("a", b"m%d" % n, 1, mid + n))
        ack = pub.read_packet()
        assert isinstance(ack, Puback) and ack.mid == mid + n
        if ack.rc:
            assert ack.rc == QUOTA
            return n
    raise AssertionError("nothing was refused")


def connected(broker: Kept, name: str) -> bool:
    wire = broker.wire()
    wire.send(Connect(name, clean=False, props=FOR_LONG))
    connack = wire.read_packet()
    assert isinstance(connack, Connack) and connack.rc in (0, QUOTA)
    return connack.rc == 0


def taken_in(sub: Wire, n: int) -> list[bytes]:
    got = []
    for _ in range(n):
        (packet,) = read_publishes(sub, 1)
        got.append(packet.payload)
        sub.send(Puback(packet.mid))
    return got


def test_a_full_disk(disk: Door | Tmpfs) -> None:
    with Kept(KEEP.replace("{dir}", disk.dir), disk.env) as broker:
        for name in ("sub", "late"):
            offline_subscriber(broker, ("a", 1), ("b", 2), name=name)
        pub, old = broker.client("pub", clean=True), broker.client("old", clean=True, level=4)
        durable = broker.client("durable")
        publish(pub, "a", b"before")
        disk.fill(broker)
        taken = 1 + refused(pub)
        until(lambda: "Error: the disk is full" in broker.log())
        pub.send(Publish("b", b"no", 2, 7))
        assert pub.read_packet() == Pubrec(7, QUOTA)
        durable.send(Subscribe(2, (("c", 1),)))
        assert durable.read_packet() == Suback(2, (QUOTA,))
        for level, rc in ((4, 3), (5, QUOTA)):
            wire = broker.wire(level)
            wire.send(Connect("new", clean=False, props=FOR_LONG if level == 5 else ()))
            connack = wire.read_packet()
            assert isinstance(connack, Connack) and connack.rc == rc
        qos_0_continues(broker)
        # a client with a session gets the stored messages
        sub = broker.client("sub", session=True)
        taken_in(sub, taken)
        # a message of 3.1.1 cannot be refused: it is accepted, and the broker reads no further one
        old.send(Publish("a", b"old 1", 1, 1), Publish("a", b"old 2", 1, 2))
        old_1 = read_publishes(sub, 1)
        assert old_1[0].payload == b"old 1"
        sub.send(Puback(old_1[0].mid))
        nothing_more(sub)
        disk.empty()
        assert [p.payload for p in read_publishes(sub, 1)] == [b"old 2"]
        assert [old.read_packet(), old.read_packet()] == [Puback(1), Puback(2)]
        until(lambda: "The disk has room again" in broker.log())
        publish(pub, "b", b"after", 2)
        assert broker.log().count(FULL) == 1      # logged once
        broker.kill()
        late = broker.client("late", session=True)
        assert taken_in(late, taken + 3)[-3:] == [b"old 1", b"old 2", b"after"]


def test_a_start_on_a_full_disk(disk: Door | Tmpfs) -> None:
    with Kept(KEEP.replace("{dir}", disk.dir), disk.env) as broker:
        offline_subscriber(broker, ("a", 1))
        pub = broker.client("pub", clean=True)
        publish(pub, "a", b"before")
        disk.fill(broker)
        n = refused(pub)
        broker.die()
        before = broker.log().count(FULL)
        broker.start()
        qos_0_continues(broker)
        sub = broker.client("sub", session=True)         # the spare segment has room for that
        taken_in(sub, 1 + n)
        # the storage thread finds that out when it writes the next spare: otherwise "new" may be accepted before that, and "pub" refused after it
        until(lambda: broker.log().count(FULL) > before)
        disk.empty()
        until(lambda: connected(broker, "new"))
        publish(broker.client("pub", clean=True), "a", b"after")


def filled(broker: Kept, disk: Door | Tmpfs) -> list[int]:
    """Fill more than one segment, then the disk; return the numbers of the accepted messages."""
    pub = broker.client("pub", clean=True)
    for n in range(1000):
        if n == 90:
            disk.fill(broker)
        pub.send(Publish("a", b"%04d" % n + bytes(200_000), 1, 1 + n))
        ack = pub.read_packet()
        assert isinstance(ack, Puback)
        if ack.rc:
            return list(range(n))
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_long_queue_is_drained_after_starts_on_a_full_disk(disk: Door | Tmpfs, end: str) -> None:
    with Kept(KEEP.replace("{dir}", disk.dir) + "max_queued_bytes 0\n", disk.env) as broker:
        offline_subscriber(broker, ("a", 1))
        sent = filled(broker, disk)
        done = 0
        for part in (20, 40, len(sent)):            # each start finds the room that the one before has left
            if end == "kill":
                broker.kill()
            else:
                broker.stop()
                broker.start()
            sub = broker.client("sub", session=True)
            got = [int(payload[:4]) for payload in taken_in(sub, 1)]
            assert got[0] == done or (end == "kill" and got[0] < done)      # a kill may forget the last acknowledgements
            got += [int(payload[:4]) for payload in taken_in(sub, part - got[0] - 1)]
            assert got == sent[got[0]:part]
            done = part
            if done < len(sent):
                read_publishes(sub, 20)             # the last of them is sent when the last acknowledgement has arrived
                sub.close()
        if isinstance(disk, Tmpfs):                 # without more room than the drained queue has left
            until(lambda: "The disk has room again" in broker.log())
        nothing_more(sub)


@pytest.mark.parametrize(("fault", "level"), [("write_errno", "group"), ("sync_errno", "strict")])
def test_a_disk_that_fails(faults: Faults, fault: str, level: str) -> None:
    with Kept(KEEP + f"durability {level}\n", faults.env) as broker:
        offline_subscriber(broker, ("a", 1))
        pub, other = broker.client("pub", clean=True), broker.client("other", clean=True)
        faults.set(**{fault: errno.EIO})
        pub.send(Publish("a", b"x", 1, 1))
        until(lambda: "Input/output error" in broker.log())
        other.send(Publish("a", b"y", 1, 2))
        assert other.read_packet() == Puback(2, QUOTA)
        qos_0_continues(broker)
        nothing_more(pub)        # the message is not on the disk
        faults.heal()
        assert pub.read_packet() == Puback(1)
        until(lambda: "The store is written again" in broker.log())
        publish(other, "a", b"z")
        broker.kill()
        assert [p.payload for p in read_publishes(broker.client("sub", session=True), 2)] == [b"x", b"z"]


def test_a_folder_that_is_read_only(faults: Faults) -> None:
    faults.set(open_errno=errno.EROFS)
    broker = Kept(KEEP, faults.env)
    with pytest.raises(RuntimeError, match=r"lock: Read-only file system; choose a directory on a disk that can be written to"):
        broker.start()
    faults.heal()
    with broker:                 # after that the write succeeds
        offline_subscriber(broker, ("a", 1))


def damaged_segment(broker: Kept, change: Callable[[bytearray], None]) -> None:
    broker.die()
    file = max(broker.dir.glob("*.store/segment.*"), key=lambda f: f.read_bytes().count(b"lose me"))
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(data)
    broker.start()


def test_lost_records_are_logged_as_a_range() -> None:
    with Kept(KEEP) as broker:
        offline_subscriber(broker, ("a", 1))
        pub = broker.client("pub", clean=True)
        for payload in (b"first", b"lose me", b"last"):
            publish(pub, "a", payload)

        def flip(data: bytearray) -> None:
            data[data.index(b"lose me")] ^= 1

        damaged_segment(broker, flip)
        told = re.search(r"1 damaged places in \S+: the records at lsn (\d+) to (\d+) are lost \((\d+) bytes\)", broker.log())
        assert told is not None, broker.log()
        lo, hi, n = map(int, told.groups())
        assert 0 < lo < hi == lo + n
        sub = broker.client("sub", session=True)
        assert [p.payload for p in read_publishes(sub, 2)] == [b"first", b"last"]


def test_a_missing_segment_is_logged() -> None:
    with Kept(KEEP) as broker:
        offline_subscriber(broker, ("a", 1))
        pub = broker.client("pub", clean=True)
        for n in range(22):
            publish(pub, "a", b"%02d" % n + bytes(1_900_000))
        broker.die()
        files = {int.from_bytes(f.read_bytes()[32:40], "little"): f for f in broker.dir.glob("*.store/segment.*")}
        files[2].unlink()
        broker.start()
        told = re.search(r"1 damaged places in \S+: the records at lsn (\d+) to (\d+) are lost", broker.log())
        assert told is not None and 12 * MIB < int(told[2]) - int(told[1]) <= 16 * MIB, broker.log()
        sub = broker.client("sub", session=True)
        left = [*range(8), *range(16, 22)]       # each segment of 16 MiB holds eight messages
        assert [int(p[:2]) for p in taken_in(sub, len(left))] == left


# ---- clocks

def leaving(broker: Kept, expiry_s: int, name: str = "sub") -> None:
    wire = broker.wire()
    wire.send(Connect(name, clean=False, props=((P.SESSION_EXPIRY, expiry_s),)))
    wire.read_packet()
    subscribe(wire, ("a", 1))
    wire.send(Disconnect())
    wire.expect_closed()


def test_a_clock_jump_forward_expires_sessions_and_messages(faulty: Kept, faults: Faults) -> None:
    leaving(faulty, 3600)
    leaving(faulty, 0xFFFFFFFF, "lasting")
    pub = faulty.client("pub", clean=True)
    pub.send(Publish("a", b"brief", 1, 1, props=((P.EXPIRY, 600),)))
    assert pub.read_packet() == Puback(1)
    faults.set(wall_ms=DAY_MS)
    wire = faulty.client("sub", session=True)            # a running broker does not depend on the clock
    assert [p.payload for p in read_publishes(wire, 1)] == [b"brief"]
    wire.send(Disconnect(0, ((P.SESSION_EXPIRY, 3600),)))
    wire.expect_closed()
    publish(pub, "a", b"long")   # earlier records are on the disk
    faults.set(wall_ms=3 * DAY_MS)
    faulty.kill()
    until(lambda: "Expiring client sub due to timeout" in faulty.log())
    faulty.client("sub", session=False)
    assert [p.payload for p in read_publishes(faulty.client("lasting", session=True), 1)] == [b"long"]


def test_a_clock_jump_back_prolongs_no_session(faulty: Kept, faults: Faults) -> None:
    """Test that a session lasts no longer than configured; a message lasts until the clock reaches its end."""
    leaving(faulty, 1)
    offline_subscriber(faulty, ("a", 1), name="lasting")
    pub = faulty.client("pub", clean=True)
    pub.send(Publish("a", b"brief", 1, 1, props=((P.EXPIRY, 600),)))
    assert pub.read_packet() == Puback(1)
    faults.set(wall_ms=-DAY_MS)
    faulty.kill()
    until(lambda: "Expiring client sub due to timeout" in faulty.log())
    (got,) = read_publishes(faulty.client("lasting", session=True), 1)
    left = dict(got.props)[P.EXPIRY]
    assert got.payload == b"brief" and isinstance(left, int) and DAY_MS // 1000 < left <= DAY_MS // 1000 + 600
