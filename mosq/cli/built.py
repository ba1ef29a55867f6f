"""Check that the compiled units fit this checkout and this Python. An installed package has no sources beside it and
is not checked. The check takes less than 1 ms: the compiled core looks at each file of cext/."""

import _imp
import os

UNITS = ("_core", "_tls", "_bench")
ENDS = (_imp.extension_suffixes()[0], ".py")        # .py: the names of a build with separate modules
NOT_SHIPPED = b"testing"
ADVICE = "run `make build`"


def problem(package: str = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) -> str:
    """Return one line that says what is wrong and what to do; "" if nothing is. `package` is the folder of mosq."""
    sources = os.path.join(os.path.dirname(package), "cext")
    if not os.path.isdir(sources):
        return ""
    times = {name: max(_time(f"{package}/{name}{end}") for end in ENDS) for name in UNITS}
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
    """Return the line for an import that failed; "" if it is not about a compiled unit of a checkout."""
    name = (error.name or "").removeprefix("mosq.")         # for a file that is no module, it has no package
    if name not in UNITS:
        return ""
    try:
        return problem() or f"mosq: the compiled unit mosq.{name} cannot be loaded ({error}); {ADVICE}"
    except ImportError:
        return f"mosq: the compiled unit mosq.{name} cannot be loaded ({error}); {ADVICE}"


def _time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
