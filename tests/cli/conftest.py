"""Run the command with its own fake engine (see fake.py)."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def mosq():
    """Provide mosq("-c", "x.conf"), which runs the command to its end."""

    def run(*arguments, way="good", env=None):
        return subprocess.run([sys.executable, "-m", "tests.cli.fake", way, *map(str, arguments)], cwd=ROOT, env=env,
                              capture_output=True, text=True, timeout=20, check=False)

    return run


@pytest.fixture
def start():
    """Provide start("-v"), which starts the command; its log lines are in `stderr`. A running command is killed at the end."""
    with contextlib.ExitStack() as stack:

        def run(*arguments, way="good"):
            process = subprocess.Popen([sys.executable, "-m", "tests.cli.fake", way, *map(str, arguments)], cwd=ROOT,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


@pytest.fixture
def until():
    """Provide until(process, "running"), which reads the log up to a line with this text, and returns the lines."""

    def read(process, text):
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(f"{text!r} is not in the log: {lines}")

    return read
