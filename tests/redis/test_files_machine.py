"""Call file operations in any order, over connections that break and processes that end, and compare with a model.

The model has the files after each number of an operation. A process that takes the store finds the files of one of these numbers,
which is at least that of the last sync.
"""

from __future__ import annotations

import copy
import os

import pytest
from cext.testing.disk_api import CalledFiles
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from mosq._redis import LogFiles
from tests.harness.effort import tries
from tests.redis.server import Server

pytestmark = pytest.mark.part("redis")

NAMES = st.sampled_from(["/d/a", "/d/b", "/d/s/a", "/d/s/c"])
Model = dict[str, bytearray]


class Machine(RuleBasedStateMachine):
    server: Server

    @initialize()
    def begin(self) -> None:
        self.server.call("FLUSHALL")
        self.model: Model = {}
        self.after: dict[int, Model] = {0: {}}      # number of an operation -> files
        self.synced = 0
        self.take()

    def take(self) -> None:
        """Take the store as a new process."""
        self.log: LogFiles = self.server.files()
        self.calls = CalledFiles(self.log)
        self.open: dict[int, bytearray] = {}        # descriptor -> content
        number = self.log.counts()["given"]
        assert number >= self.synced
        self.model = copy.deepcopy(self.after[number])
        self.after = {number: copy.deepcopy(self.model)}
        self.synced = number
        self.everything_is_the_same()
        self.lengths_are_noted()

    def lengths_are_noted(self) -> None:
        """The head has the length of each content, and of no other one."""
        keys = self.server.call("KEYS", "mosq:{log}:f:*")
        assert isinstance(keys, list)
        noted = {key: int(value) for key, value in self.server.head().items() if key.startswith(b"mosq:")}
        assert noted == {key: self.server.call("STRLEN", key) for key in keys}       # type: ignore[arg-type]

    def note(self) -> None:
        self.after[self.log.counts()["given"]] = copy.deepcopy(self.model)

    def everything_is_the_same(self) -> None:
        for folder in ("/d", "/d/s"):
            assert sorted(self.calls.names(folder)) == sorted(n.rsplit("/", 1)[1] for n in self.model if n.rsplit("/", 1)[0] == folder)
        for name, content in self.model.items():
            fd = self.calls.open(name, os.O_RDWR)
            assert self.read(fd) == content
            self.calls.close(fd)

    def read(self, fd: int, n: int = 1 << 20) -> bytes:
        out = b""
        while piece := self.calls.pread(fd, n, len(out)):
            assert isinstance(piece, bytes), self.calls.why(-piece)     # type: ignore[operator]
            out += piece
        return out

    # ---- operations

    @rule(name=NAMES, exclusive=st.booleans())
    def create(self, name: str, exclusive: bool) -> None:
        fd = self.calls.open(name, os.O_RDWR | os.O_CREAT | (os.O_EXCL if exclusive else 0))
        if exclusive and name in self.model:
            assert fd < 0
            return
        self.open[fd] = self.model.setdefault(name, bytearray())
        self.note()

    @rule(data=st.data(), at=st.integers(0, 300), n=st.sampled_from([1, 7, 100, 70000]), fill=st.integers(0, 255))
    def write(self, data: st.DataObject, at: int, n: int, fill: int) -> None:
        if not self.open:
            return
        fd = data.draw(st.sampled_from(sorted(self.open)))
        content = self.open[fd]
        assert self.calls.pwrite(fd, bytes([fill]) * n, at) == n
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at:at + n] = bytes([fill]) * n
        self.note()

    @rule(data=st.data(), n=st.integers(0, 200))
    def cut_or_extend(self, data: st.DataObject, n: int) -> None:
        if self.open:
            fd = data.draw(st.sampled_from(sorted(self.open)))
            assert self.calls.truncate(fd, n) == 0
            content = self.open[fd]
            del content[n:]
            content.extend(bytes(n - len(content)))
            self.note()

    @rule(data=st.data(), n=st.sampled_from([5000, 1 << 20]))
    def read_back(self, data: st.DataObject, n: int) -> None:
        if self.open:
            fd = data.draw(st.sampled_from(sorted(self.open)))
            assert self.calls.size(fd) == len(self.open[fd])
            assert self.read(fd, n) == self.open[fd]

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if self.open:
            fd = data.draw(st.sampled_from(sorted(self.open)))
            assert self.calls.close(fd) == 0
            del self.open[fd]
            self.note()

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        assert (self.calls.unlink(name) == 0) == (self.model.pop(name, None) is not None)
        self.note()

    @rule(name=NAMES, other=NAMES)
    def rename(self, name: str, other: str) -> None:
        if name in self.model:
            assert self.calls.rename(name, other) == 0
            self.model[other] = self.model.pop(name)
            self.note()

    @rule()
    def sync(self) -> None:
        assert self.calls.datasync(1) == 0
        self.synced = self.log.counts()["given"]

    # ---- faults

    @rule()
    def connection_breaks(self) -> None:
        self.server.cut()

    @rule()
    def functions_are_forgotten(self) -> None:
        self.server.call("SCRIPT", "FLUSH")

    @rule()
    def another_process_takes_the_store(self) -> None:
        old = self.calls
        self.take()
        fd = old.open("/d/z", os.O_RDWR | os.O_CREAT)
        old.pwrite(fd, b"late", 0)
        assert old.datasync(fd) < 0
        assert "another process has taken this store" in old.why(1)

    @invariant()
    def no_content_without_a_name_or_descriptor(self) -> None:
        if hasattr(self, "log") and self.log.counts()["applied"] == self.log.counts()["given"]:
            alive = {id(c): c for c in [*self.model.values(), *self.open.values()]}
            assert self.server.contents() == sum(1 for c in alive.values() if c)


@pytest.mark.again("redis")
def test_file_operations_are_those_of_a_model(server: Server) -> None:
    Machine.server = server
    run_state_machine_as_test(Machine, settings=settings(  # type: ignore[no-untyped-call]
        max_examples=tries(150, 25), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)))
