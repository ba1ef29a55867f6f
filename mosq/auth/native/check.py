"""Checks a native plugin without a broker, in a process of its own: that its library loads, that all names which it
needs exist, and that it is a plugin. Runs no code of the plugin except its library's constructors; a crash of these
ends only that process.
"""

import subprocess
import sys

from mosq.config.plugin import NATIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.plugin import Plugin as Line

WITHIN_S = 20
NAMES = ("mosquitto_plugin_version", "mosquitto_auth_plugin_version")


def unloadable_native(line: "Line") -> str | None:
    """Return why the start would refuse a native plugin, and what to do; None: no reason is known."""
    if line.kind != NATIVE:
        return None
    try:
        done = subprocess.run([sys.executable, "-m", "mosq.auth.native.check", line.path], capture_output=True,
                              text=True, timeout=WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        return (f"Unable to load plugin '{line.path}': its library does not load within {WITHIN_S} s. Expected a "
                "native plugin.")
    except OSError as error:
        return f"Unable to check plugin '{line.path}': {error.strerror}."
    if done.returncode < 0:
        return f"Unable to load plugin '{line.path}': its library ends the process with signal {-done.returncode}."
    return done.stdout.strip() or None


def main(path: str) -> None:
    """Print why a library cannot be loaded as a plugin; nothing if it can."""
    import ctypes
    import os

    from mosq.auth.native.calls import open_shim

    open_shim()
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        print(f"Unable to load plugin '{path}': {error}. Expected a plugin for this machine and Mosquitto 2; "
              "`nm -D` shows the names that it needs.")
        return
    if not any(hasattr(library, name) for name in NAMES):
        print(f"Unable to load plugin '{path}': it is no plugin of Mosquitto: it has no function {NAMES[0]}. Expected "
              "the path of a plugin.")


if __name__ == "__main__":
    main(sys.argv[1])
