"""Checks a native plugin without a broker, in a process of its own: that its library loads, that all names which it
needs exist, and that it has the functions of its interface version.

Runs the constructors of the library and the function that returns its version, with the rights of the broker's user. A
crash of these ends only that process, and a time limit holds for them. The initialization, which may open files and
start threads, is not called.
"""

import os
import subprocess
import sys

from mosq.config.plugin import NATIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from mosq.config.plugin import Plugin as Line

    class Account(Protocol):
        """The account whose rights the broker takes."""

        uid: int
        gid: int
        groups: list[int]

WITHIN_S = 20
GOOD = "good"                           # the report about a plugin without a fault
NO_PLUGIN = "mosquitto_auth_plugin_version() or mosquitto_plugin_version()"
# part of a reason -> what to do
ADVICE = {
    "undefined symbol: mosquitto_": "a name that Mosquitto 2.1 exports to plugins: mosq has all of these. A function "
                                    "of the client library needs -lmosquitto.",
    "undefined symbol": "the library that has this name to be linked to the plugin (gcc -l...).",
    "no ELF header": "the .so file of a plugin.",
    "no plugin": "the .so file of a plugin.",
    "plugin version": "interface version 2, 3, 4 or 5.",
    "no function": "all functions of the plugin's interface version.",
}


def unloadable_native(line: "Line", account: "Account | None" = None) -> str | None:
    """Return why the start would refuse a native plugin, and what to do; None: no reason is known. `account`: the
    broker's user, if root calls this."""
    if line.kind != NATIVE:
        return None
    rights = [] if account is None else [str(one) for one in (account.uid, account.gid, *account.groups)]
    # -P: a module in the folder of the caller is not imported
    command = [sys.executable, "-P", "-m", "mosq.auth.native.check", line.path, *rights]
    path = os.pathsep.join(one for one in sys.path if one)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, timeout=WITHIN_S, check=False, env={**os.environ, "PYTHONPATH": path})
    except subprocess.TimeoutExpired:
        return (f"Unable to load plugin '{line.path}': its library, or its function that returns the version, does not "
                f"return within {WITHIN_S} s. Expected a plugin that waits in its initialization, if at all.")
    except OSError as error:
        return f"Unable to check plugin '{line.path}': {error.strerror}."
    if done.stdout.strip() == GOOD:
        return None
    if done.stdout:
        return f"Unable to load plugin '{line.path}': {done.stdout.strip()}"
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    return (f"Unable to load plugin '{line.path}': its library, or its function that returns the version, ends the "
            f"process with {how}. Expected a plugin that loads; gdb shows where it ends (docs/plugins-c.md).")


def main(path: str, rights: list[int]) -> None:
    """Report why a library cannot be loaded as a plugin, or that it is good, on the standard output."""
    from mosq.auth.native.calls import DO_LOG, open_shim
    from mosq.auth.native.host import LEVELS
    from mosq.log_types import ERROR

    try:
        shim = open_shim()
    except OSError as error:
        print(f"the shim of native plugins cannot be loaded: {error}")
        return
    report_fd = os.dup(1)
    os.dup2(2, 1)                       # what the plugin prints is no report
    if rights:
        uid, gid, *groups = rights
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
    status = shim.mosq_shim_check(os.fsencode(path))
    lines = []
    while action := shim.mosq_shim_action_take():
        if action.contents.kind == DO_LOG and LEVELS.get(action.contents.level) == ERROR:
            lines.append((action.contents.text or b"").decode("utf-8", "replace"))
        shim.mosq_shim_action_free(action)
    os.write(report_fd, (_reason(path, lines) if status else GOOD).encode())
    os._exit(0)                         # destructors of the library are not the start's


def _reason(path: str, lines: list[str]) -> str:
    """Return the reason in the lines that the start would log, and what to do."""
    first, *rest = lines or ["no memory"]
    reason = first.removeprefix("Error: ").removesuffix(".")
    if rest and reason.startswith("Unable to load plugin \""):
        reason = rest[0].removeprefix("Load error: ")
    for words in ("Unable to load plugin function ", "Unable to load auth plugin function "):
        if reason.startswith(words):
            name = reason.removeprefix(words)
            reason = f"{'it is no plugin of Mosquitto: ' if name == NO_PLUGIN else ''}it has no function {name}"
    reason = reason.removeprefix(f"{path}: ")
    advice = next((advice for part, advice in ADVICE.items() if part in reason), "")
    if "cannot open shared object file" in reason:
        advice = _advice_about_files(path, reason)
    return f"{reason}. Expected {advice}" if advice else f"{reason}."


def _advice_about_files(path: str, reason: str) -> str:
    if not reason.startswith("cannot open"):        # the reason begins with the name of another library
        return f"that library too: `ldd {path}` shows which ones are missing."
    if "Permission denied" in reason:
        return "a file and folders that the broker's user may read."
    if "/" not in path:
        return "the whole path of the .so file: without a / it is looked up in the folders of the system."
    return "the path of the .so file of a plugin."


if __name__ == "__main__":
    main(sys.argv[1], [int(one) for one in sys.argv[2:]])
