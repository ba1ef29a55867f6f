from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.broker import ROOT


class Load:
    """Run `python -m perf.load` in its own process, because locust and gevent change the process that imports them."""

    def __init__(self, folder: Path, *args: str, env: dict[str, str]) -> None:
        self.out, self.log = folder / "out", folder / "said"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "perf.load", "--out", str(self.out), *args], cwd=ROOT,
                                            env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> int:
        return self.process.wait(60)

    @property
    def log_text(self) -> str:
        return self.log.read_text()

    @property
    def result(self) -> dict:
        """Return the current result."""
        paths = list(self.out.glob("*/locust.json"))
        return json.loads(paths[0].read_text()) if paths else {"entries": [], "errors": []}

    def sums(self, name: str) -> dict[str, int]:
        """Return the requests that did not fail, by type."""
        return {entry["type"]: entry["requests"] - entry["failures"] for entry in self.result["entries"] if entry["name"] == name}

    def failures(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for error in self.result["errors"]:
            found[error["error"]] = found.get(error["error"], 0) + error["count"]
        return found


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Load]]:
    made: list[Load] = []

    def start(*args: str, **env: str) -> Load:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Load(folder, *args, env=env))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.terminate()
            try:
                one.process.wait(20)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
