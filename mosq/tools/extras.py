"""Explain how to install the optional packages of mosq, the extras in pyproject.toml, for each way in which mosq is
installed.

The advice names the packages and not the extra: mosq is on no package index, and the file of the wheel need not be
there any more.
"""

import os
import re
import shlex
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.config.model import Config, Listener

CHECKOUT, WHEEL, DEBIAN = "checkout", "wheel", "Debian package"
DEBIAN_FOLDER = "/usr/lib/mosq"
# packaging/mosq.py puts this folder on the path of the Debian package; compiled packages fit one version of Python
DEBIAN_EXTRAS = f"/usr/local/lib/mosq/python{sys.version_info[0]}.{sys.version_info[1]}"
OF_EXTRA = re.compile(r"""^(?P<requirement>[^;]+);\s*extra\s*==\s*["'](?P<extra>[^"']+)["']$""")
# in which the package mosq is
FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def way_of(folder: str) -> str:
    """Return how the mosq in this folder was installed."""
    if folder == DEBIAN_FOLDER:
        return DEBIAN
    return CHECKOUT if os.path.isfile(os.path.join(folder, "pyproject.toml")) else WHEEL


def requirements(extra: str, folder: str = FOLDER) -> list[str]:
    """Return the packages of an extra in the form of pip; an empty list if mosq lacks its metadata, or may not read
    it: a broker gives up its rights before a reload."""
    if way_of(folder) == CHECKOUT:
        try:
            import tomllib

            with open(os.path.join(folder, "pyproject.toml"), "rb") as file:
                return list(tomllib.load(file)["project"]["optional-dependencies"][extra])
        except (ImportError, OSError):
            return []
    from importlib.metadata import distributions

    for one in distributions(name="mosq", path=[folder]):
        found = [OF_EXTRA.match(line) for line in one.requires or ()]
        return [match["requirement"].strip() for match in found if match is not None and match["extra"] == extra]
    return []


def install_advice(extra: str, folder: str = FOLDER) -> str:
    """Return the command that installs the packages of an extra."""
    return packages_advice(requirements(extra, folder) or [f"mosq[{extra}]"], folder)


def packages_advice(packages: "Iterable[str]", folder: str = FOLDER) -> str:
    """Return the command that installs these packages for this mosq."""
    words = " ".join(f"'{one}'" for one in packages)
    if way_of(folder) == DEBIAN:
        return f"as root: apt install python3-pip && python3 -m pip install --target {DEBIAN_EXTRAS} {words}"
    return f"{shlex.quote(sys.executable)} -m pip install {words}"


def without_metrics(listener: "Listener") -> str:
    """Return the error of a listener whose `http_metrics` lacks its package."""
    return (f"Listener {listener.where}: http_metrics needs the package prometheus-client. To install it: "
            f"{install_advice('metrics')}")


def missing_packages(config: "Config") -> "list[tuple[str, object]]":
    """Return (the error, its place in the file) for each listener that does not start without an optional package.
    Imports no package."""
    asks = [one for one in config.listeners if one.http_metrics]
    if not asks or _is_there("prometheus_client"):
        return []
    return [(without_metrics(one), one.origins.get("http_metrics")) for one in asks]


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ValueError:
        return sys.modules[module] is not None
