"""Make the archive that the executors of a cluster unpack: mosq with its native core, and Python packages if wanted.

Spark copies an archive of `spark.archives` to each executor and unpacks it in the executor's folder. The other way,
`spark.submit.pyFiles`, puts a zip on Python's path; Python cannot load compiled modules from there.
"""

import functools
import os
import re
import sys
import sysconfig
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = "mosq-packages"  # in the folder of an executor
ARCHIVES = "spark.archives"
HOME = Path(__file__).parents[2]  # the folder of the package mosq
# the packages that tasks import, with what these need; Spark itself brings pyspark and py4j to each executor
PACKAGES = ("pyarrow", "numpy", "pandas", "deltalake", "protobuf")
OF_SPARK = ("pyspark", "py4j")
ENDS = (".py", ".so", ".properties", ".typed")
# files of packages that no task needs: a third of the archive
LEFT_OUT = re.compile(r"/tests?/|/include/|\.pyx$|\.pxd$|\.pyi$|\.[hc]$|\.a$|/__pycache__/|^\.\./|\.dist-info/RECORD$")


def files_of_mosq() -> "Iterator[tuple[Path, str]]":
    """Yield the files of the package mosq, with their names in the archive."""
    if not (HOME / "_core.abi3.so").exists():
        raise MosqPipelineError(f"{HOME}: there is no compiled core to pack: run `make build`, or install the wheel")
    for path in sorted(HOME.rglob("*")):
        if path.suffix in ENDS and not path.name.startswith(("_bench.", "_tls.")) and path.is_file():
            yield path, f"mosq/{path.relative_to(HOME)}"


def needed() -> list[str]:
    """Return the names of the packages that tasks need, with their own requirements, that are installed here."""
    waiting, found = list(PACKAGES), dict[str, str]()
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found or key in OF_SPARK:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            if name in PACKAGES and name != "protobuf":
                raise MosqPipelineError(f"{name} is not installed: {install_advice('pipeline')}") from None
            continue  # protobuf is for Sparkplug only; others are for other systems
        found[key] = name
        waiting += [one[0] for text in requirements if "extra ==" not in text and (one := re.match(r"[\w.-]+", text))]
    return sorted(found.values())


def files_of(name: str) -> "Iterator[tuple[Path, str]]":
    """Yield the files of an installed package, with their names in the archive."""
    for file in metadata.files(name) or ():
        path = Path(str(file.locate()))
        if not LEFT_OUT.search(str(file)) and path.is_file():
            yield path, str(file)


def make(file: Path, with_packages: bool = True) -> int:
    """Write the archive; return its size. An interrupted one leaves no file of this name."""
    names = needed() if with_packages else []
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
            for path, name in files_of_mosq():
                archive.write(path, name)
            for package in names:
                for path, name in files_of(package):
                    archive.write(path, name)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return file.stat().st_size


def archive_option(file: Path) -> str:
    """Return the value of `spark.archives` for an archive."""
    return f"{file.absolute().as_uri()}#{FOLDER}"


def python_path(local: bool) -> str:
    """Return PYTHONPATH for the workers: the archive on a cluster, then the places of this process.

    The Python processes beside the driver get the same path; there the archive is not unpacked.
    """
    workers = Path("pipeline/workers")
    here = [HOME / workers, HOME.parent]
    if local:
        return os.pathsep.join(map(str, here))
    unpacked = [Path(FOLDER, "mosq") / workers, FOLDER]
    # another Python beside the driver, named by spark.pyspark.python, finds the packages of this one
    return os.pathsep.join(map(str, [*unpacked, *here, sysconfig.get_path("purelib")]))


@functools.cache
def _sent() -> tuple[tempfile.TemporaryDirectory[str], str]:
    """Make the archive that a session sends by itself: mosq alone. Return its folder and Spark's option.

    The folder ends with this process.
    """
    folder = tempfile.TemporaryDirectory(prefix="mosq-package-")
    file = Path(folder.name, "mosq.zip")
    make(file, with_packages=False)
    return folder, archive_option(file)


def options(master: str, given: "Mapping[str, str]") -> dict[str, str]:
    """Return Spark's options with which executors find mosq; `given` are those of the caller."""
    found = {"spark.executorEnv.PYTHONPATH": python_path(master.startswith("local"))}
    if master and not master.startswith("local") and FOLDER not in given.get(ARCHIVES, ""):
        _, sent = _sent()
        found[ARCHIVES] = ",".join(filter(None, (given.get(ARCHIVES), sent)))
    return found


def summary(with_packages: bool) -> str:
    """Return what an archive has, as text."""
    from mosq.version import VERSION

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not with_packages:
        return f"mosq {VERSION} for Python 3.11 and later"
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in needed())
    return f"mosq {VERSION}, {packages}; for Python {python} on {sysconfig.get_platform()}"
