"""Provide faults for a broker process: disk, memory and clock, turned on and off while it runs (faults.c describes them)."""

from __future__ import annotations

import atexit
import functools
import mmap
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.effort import TIMEOUT_S

LAYOUT = struct.Struct("=QqIIIIIIIIIII")
NAMES = ("realloc_from", "wall_ms", "write_errno", "sync_errno", "full", "stalled", "waiting", "open_errno", "later_s", "sends",
         "read_errno", "denied", "threads_refused")


@functools.cache
def library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mosq-faults-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", folder / "faults.so", Path(__file__).with_suffix(".c"), "-ldl"],
                   check=True, env=env, capture_output=True)
    return folder / "faults.so"


class Faults:
    """The faults of one broker. Its attributes are the fields of `struct door` in faults.c."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="mosq-faults-")
        self._path = Path(name)
        self._path.chmod(0o666)         # a broker may have changed to another user
        os.truncate(handle, LAYOUT.size)
        self._page = mmap.mmap(handle, LAYOUT.size)
        os.close(handle)

    @property
    def env(self) -> dict[str, str]:
        before = os.environ.get("LD_PRELOAD", "").split()
        return {"LD_PRELOAD": " ".join([*before, str(library())]), "MOSQ_TEST_FAULTS": str(self._path)}

    def __getattr__(self, name: str) -> int:
        if name not in NAMES:
            raise AttributeError(name)
        return int(LAYOUT.unpack_from(self._page)[NAMES.index(name)])

    def set(self, **values: int) -> None:
        now = dict(zip(NAMES, LAYOUT.unpack_from(self._page), strict=True)) | values
        LAYOUT.pack_into(self._page, 0, *(now[name] for name in NAMES))

    def heal(self) -> None:
        """Turn all faults off, except the offsets of the clocks."""
        self.set(realloc_from=0, write_errno=0, sync_errno=0, full=0, stalled=0, open_errno=0, sends=0, read_errno=0, threads_refused=0)

    def close(self) -> None:
        self.heal()
        self._page.close()
        self._path.unlink()


def until(what: Callable[[], object], timeout_s: float = 2 * TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not come to this in time"
        time.sleep(0.005)
