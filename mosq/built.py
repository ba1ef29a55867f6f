"""Check that the compiled units fit this checkout and this Python. An installed package has no sources beside it and
is not checked. The check takes less than 1 ms: the compiled core looks at each file of cext/."""

import os

UNITS = ("_core", "_tls", "_bench")
# not checked: the unit _redis, which a build without libhiredis leaves out
SHIM = "_shim"                      # of native plugins: no module of Python
ENDS = (".abi3.so", ".py")          # .py: the names of a build with separate modules
NOT_SHIPPED = b"testing"
ADVICE = "run `make build`"
GLIBC = "2.34"                      # the least version of the wheel; dev/wheels shows it in the name of its file


def problem(package: str = os.path.dirname(os.path.abspath(__file__))) -> str:
    """Return one line that says what is wrong and what to do; "" if nothing is. `package` is the folder of mosq."""
    sources = os.path.join(os.path.dirname(package), "cext")
    if not os.path.isdir(sources):
        return ""
    times = {name: max(_time(f"{package}/{name}{end}") for end in ENDS) for name in (*UNITS, SHIM)}
    for name, built in times.items():
        if not built:
            other = [one for one in os.listdir(package) if one.startswith(f"{name}.") and one.endswith(".so")]
            why = f"is built for another Python ({other[0]})" if other else "is not built"
            return f"mosq: the compiled unit mosq.{name} {why}; {ADVICE}"
    damaged = _damaged(os.path.dirname(package))
    if damaged:
        return f"mosq: the compiled file {damaged} is missing or damaged; {ADVICE}"
    from mosq._core import newer_source

    newer = newer_source(os.fsencode(sources), min(times.values()), NOT_SHIPPED)
    if not newer:
        return ""
    newer_name = os.path.relpath(os.fsdecode(newer), os.path.dirname(package))
    return f"mosq: {newer_name} is newer than the compiled units; {ADVICE}"


def _damaged(root: str) -> str:
    """Return the first compiled file whose size is not the one that the build has noted in build/sizes; "" if there is
    none."""
    try:
        with open(f"{root}/build/sizes", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                size, _, path = line.rstrip("\n").partition(" ")
                try:
                    if os.stat(f"{root}/{path}").st_size != int(size):
                        return path
                except OSError:
                    return path
    except (OSError, ValueError):
        pass                        # built by other means than dev/build
    return ""


def why_not_loaded(error: ImportError) -> str:
    """Return the line for an import that failed; "" if it is not about a compiled unit."""
    name = (error.name or "").removeprefix("mosq.")         # for a file that is no module, it has no package
    if name not in UNITS:
        return ""
    cannot = f"mosq: the compiled unit mosq.{name} cannot be loaded ({error})"
    package = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(os.path.join(os.path.dirname(package), "cext")):
        return f"{cannot}; {_remedy(str(error))}"
    try:
        line = problem()
    except ImportError:
        line = ""
    line = line or f"{cannot}; {ADVICE}"
    installed = _installed(package)
    if installed:
        line += f", or start Python in another folder (or with -P) to use the mosq that is installed in {installed}"
    return line


def _remedy(error: str) -> str:
    """Return what to do when an installed unit cannot be loaded."""
    if "libssl" in error or "libcrypto" in error or "OPENSSL_" in error:
        return "mosq uses the system's OpenSSL 3; install it (on Debian: apt install libssl3)"
    if "GLIBC_" in error or "libc.so.6" in error or "ld-linux" in error:
        return (f"this wheel is for glibc {GLIBC} or newer, and not for musl; "
                "build mosq from its source distribution on this machine")
    return "the installation is incomplete or for another machine; install mosq again"


def _installed(package: str) -> str:
    """Return the folder of an installed mosq that this Python would import elsewhere; "" if there is none."""
    import sys

    for folder in sys.path:
        other = os.path.join(folder, "mosq")
        if (folder and os.path.isfile(f"{other}/_core{ENDS[0]}") and not os.path.isdir(f"{folder}/cext")
                and os.path.realpath(other) != os.path.realpath(package)):
            return folder
    return ""


def _time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
