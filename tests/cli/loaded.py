"""Run a broker whose Python can read no more modules once it listens, like a root's own Python after the broker has given up its rights.

At its end it prints the modules that it wanted in vain. `python -m tests.cli.loaded -c FILE`; see test_loaded_later.py.
"""

import importlib.machinery
import os
import sys

from mosq.server import process

missed: list[str] = []


class Unreadable:
    """Find no module in files."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in sys.builtin_module_names or importlib.machinery.FrozenImporter.find_spec(name) is not None:
            return
        if importlib.machinery.PathFinder.find_spec(name, path) is not None:    # type: ignore[arg-type]
            missed.append(name)
            raise ModuleNotFoundError(f"{name} cannot be read", name=name)


def become(who: process.Account, files: object = ()) -> None:
    process.load_now()
    sys.meta_path.insert(0, Unreadable)     # type: ignore[arg-type]


if __name__ == "__main__":
    process.find_account = lambda user: process.Account("nobody", os.getuid(), os.getgid(), [])     # type: ignore[assignment]
    process.Acting.__enter__ = lambda self: None        # type: ignore[method-assign]
    process.Acting.__exit__ = lambda self, *exception: None     # type: ignore[method-assign]
    process.become = become             # type: ignore[assignment]
    from mosq.cli import main

    status = main()
    os.write(1, f"missed: {' '.join(missed)}\n".encode())
    sys.exit(status)
