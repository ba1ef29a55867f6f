"""Write the folder of results: about.json describes their origin, runs.jsonl has a line for each run.

Both files are valid at any moment: a lab that is killed keeps its results. `mosq bench report` reads them.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.run import machine
from perf.lab.peers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1
GIT_S = 20.0


class FolderError(Exception):
    """State why results cannot go into the folder."""


class Folder:
    """Hold a folder of results that is being written."""

    def __init__(self, path: Path, title: str, command: str, options: dict[str, object]) -> None:
        """Open a folder of results.

        `options` must be equal for repetitions of one measurement. Results are added to an existing folder if it has
        the same commit and options.
        """
        self.path = path
        self.about_path, self.runs_path = path / "about.json", path / "runs.jsonl"
        commit, dirty = version_control()
        self.about: dict[str, Any] = {
            "format": FORMAT, "title": title, "commit": commit, "dirty": dirty, "machine": this_machine(),
            "brokers": {}, "left_out": [], "command": command, "asked": options, "started": now(), "ended": "",
            "complete": False, "why": "still running"}
        self.reps: dict[tuple[str, str, str, str, str], int] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            if self.runs_path.exists():
                self._go_on()
            self.runs = self.runs_path.open("a", encoding="utf-8")
        except (OSError, ValueError, KeyError) as error:
            raise FolderError(f"cannot keep results in {path}: {error}") from None
        self._write()

    def _go_on(self) -> None:
        if self.about_path.exists():
            before = json.loads(self.about_path.read_text())
            if before["commit"] != self.about["commit"]:
                raise FolderError(f"{self.path} has results of commit {before['commit'][:12] or 'unknown'}; this is "
                                  f"{self.about['commit'][:12] or 'unknown'}: use another folder (--dir)")
            if before["dirty"] != self.about["dirty"]:
                with_out = {True: "with uncommitted changes", False: "without any change"}
                raise FolderError(f"{self.path} has results of this commit {with_out[before['dirty']]}; this is "
                                  f"{with_out[self.about['dirty']]}: use another folder (--dir)")
            if other := _differences(before.get("asked", {}), self.about["asked"]):
                raise FolderError(f"{self.path} has results with other options: {other}: use the same options, or "
                                  "another folder (--dir)")
            self.about |= {"brokers": before["brokers"], "left_out": before.get("left_out", []),
                           "started": before["started"]}
            for name in ("title", "command"):
                if self.about[name] not in before[name]:
                    self.about[name] = f"{before[name]}; {self.about[name]}"
        text = self.runs_path.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):            # a killed lab may leave an incomplete line
            self.runs_path.write_text(text[:text.rfind("\n") + 1], encoding="utf-8")
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                run = json.loads(line)["run"]
                key = self.key(run)
                self.reps[key] = max(self.reps.get(key, 0), run["rep"] + 1)

    @staticmethod
    def key(run: dict[str, Any]) -> tuple[str, str, str, str, str]:
        return run["suite"], run["test"], run["case"], run["broker"], run["variant"]

    def know(self, **values: object) -> None:
        self.about |= values
        self._write()

    def broker(self, name: str, *, version: str, settings: str, program: str) -> None:
        self.about["brokers"][name] = {"version": version, "settings": settings, "program": program}
        self._write()

    def add(self, result: dict[str, Any]) -> None:
        """Add a result; `rep` continues the numbers of the existing ones."""
        result["run"]["rep"] += self.reps.get(self.key(result["run"]), 0)
        self.runs.write(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.runs.flush()

    def close(self, why: str, left_out: Iterable[str] = ()) -> None:
        """Close the folder. `why` is "" if everything was done; `left_out` names requested measurements that are
        missing.
        """
        self.runs.close()
        self.know(ended=now(), complete=not why, why=why,
                  left_out=list(dict.fromkeys((*self.about["left_out"], *left_out))))

    def _write(self) -> None:
        beside = self.path / "about.json.new"
        beside.write_text(json.dumps(self.about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self.about_path)


def _differences(before: dict[str, object], after: dict[str, object]) -> str:
    return ", ".join(f"{name} was {before.get(name)}, and is {after.get(name)} now"
                     for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def version_control() -> tuple[str, bool]:
    """Return the commit, and whether the files differ from it; "" if there is no repository."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return "", False
    lines = []
    for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=GIT_S,
                                  env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"}, check=True)
            lines.append(done.stdout.strip())
    return (lines[0], bool(lines[1])) if len(lines) == 2 else ("", False)


def this_machine() -> dict[str, object]:
    """Return a description of the machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {**machine(), "memory_bytes": pages, "distribution": distribution()}


def distribution() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text().splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip('"')
    return "unknown"
