from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from perf.lab import run as lab_run
from perf.lab.__main__ import main


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the waiting for other measurements and the pauses: the tests do not measure."""
    monkeypatch.setattr(lab_run, "bench_lock", lambda waiting: contextlib.nullcontext())
    monkeypatch.setattr(lab_run, "EVERY_S", 0.02)
    monkeypatch.setenv("MOSQ_PEERS", "")


class Results:
    def __init__(self, path: Path, status: int) -> None:
        self.status, self.path = status, path
        self.about: dict[str, Any] = json.loads((path / "about.json").read_text())
        self.runs: list[dict[str, Any]] = [json.loads(line) for line in (path / "runs.jsonl").read_text().splitlines()]


@pytest.fixture
def lab(tmp_path: Path):
    """Provide lab("paper", "--reps", "1"), which returns the content of its folder."""

    def perform(*arguments: str, folder: Path = tmp_path / "results") -> Results:
        status = main([*arguments, "--no-report", "--dir", str(folder)])
        return Results(folder, status)

    return perform


@pytest.fixture
def program(tmp_path: Path):
    """Provide program("mosquitto", "exit 3"): a folder with a program that prints its version, and else runs the script."""

    def make(name: str, does: str, version: str = "9.9.9") -> Path:
        path = tmp_path / "peers" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\ncase "$1" in -h|--version|-V|version) echo "{name} version {version}"; exit 0;; esac\n{does}\n')
        os.chmod(path, 0o755)
        return tmp_path / "peers"

    return make
