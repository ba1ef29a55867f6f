"""Test `mosq top` on a terminal: it draws, ends, and restores the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.broker import ROOT, Broker
from tests.harness.effort import TIMEOUT_S

WAIT_S = max(TIMEOUT_S, 60)     # only a failing test waits this long
CONTROL = "enable_control_api true\ncontrol_loopback true\n"


class Terminal:
    """Run a command on a terminal of 80 by 24."""

    def __init__(self, *options: str, home: Path) -> None:
        self.fd, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        self.output = b""
        environ = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(home)}
        for name in ("COLORTERM", "NO_COLOR", "FORCE_COLOR", "TEXTUAL"):
            environ.pop(name, None)
        self.process = subprocess.Popen([sys.executable, "-m", "mosq", "top", *options], stdin=self.inner, stdout=self.inner, stderr=self.inner,
                                        env=environ, start_new_session=True)  # fmt: skip

    def until(self, text: bytes) -> None:
        give_up = time.monotonic() + WAIT_S
        while text not in self.output:
            assert time.monotonic() < give_up, self.output
            self._read(0.1)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.fd], [], [], wait_s)[0]:
            return False
        self.output += os.read(self.fd, 65536)
        return True

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        give_up = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < give_up, self.output
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)
        os.close(self.inner)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONTROL) as made:
        yield made


def by_key(key: bytes) -> Callable[[Terminal], object]:
    return lambda terminal: os.write(terminal.fd, key)


def by_signal(number: int) -> Callable[[Terminal], object]:
    return lambda terminal: terminal.process.send_signal(number)


@pytest.mark.parametrize("ended", [by_key(b"q"), by_key(b"\x03"), by_signal(signal.SIGTERM), by_signal(signal.SIGHUP)],
                         ids=["q", "ctrl-c", "SIGTERM", "SIGHUP"])  # fmt: skip
def test_it_draws_and_restores_the_terminal(broker: Broker, tmp_path: Path, ended: Callable[[Terminal], object]) -> None:
    terminal = Terminal("-h", "127.0.0.1", "-p", str(broker.port), home=tmp_path)
    try:
        terminal.until(b"every 2 s")
        terminal.until(b"QUEUEv")
        ended(terminal)
        assert terminal.end() == 0, terminal.output
        assert termios.tcgetattr(terminal.inner) == terminal.before
        assert terminal.output.rindex(b"\x1b[?1049l") > terminal.output.rindex(b"\x1b[?1049h")
        assert terminal.output.rindex(b"\x1b[?25h") > terminal.output.rindex(b"\x1b[?25l")
        assert b"[38;2;" not in terminal.output     # 16 colours
        assert b"[48;2;" not in terminal.output
        assert b"[?1000h" not in terminal.output    # no mouse
        assert b"Traceback" not in terminal.output
    finally:
        terminal.close()


def test_text_that_is_pasted_after_a_slash_is_the_filter(broker: Broker, tmp_path: Path) -> None:
    """Its letters were commands: `k` asked whether to disconnect a client."""
    terminal = Terminal("-h", "127.0.0.1", "-p", str(broker.port), home=tmp_path)
    try:
        terminal.until(b"every 2 s")
        os.write(terminal.fd, b"/sky/o")
        terminal.until(b"with 'sky/o'")
        assert b"Disconnect" not in terminal.output
        os.write(terminal.fd, b"\x03")
        assert terminal.end() == 0, terminal.output
    finally:
        terminal.close()


def test_an_error_at_the_start_draws_no_screen(tmp_path: Path) -> None:
    terminal = Terminal("--unix", str(tmp_path / "none.sock"), home=tmp_path)
    try:
        assert terminal.end() == 1
        assert b"Is there a broker at" in terminal.output
        assert b"\x1b" not in terminal.output
    finally:
        terminal.close()
