"""The files of a broker: those that its configuration names, and a consistent set of the files of its store.

The store is a log. Its files only grow, and the oldest is removed after its live records were written again at the
end. So an open file keeps its content, and the files from the oldest to the newest at one moment are a store of that
moment, however much is appended while they are copied: a torn end is not an error. Streams are copied after the
store: a broker drops stream records behind the position that the store names. The marks of consumers are copied
before it, so that no mark names a record that the backup does not contain.
"""

import os
import stat

from mosq.auth.dynsec.check import readable_directory
from mosq.config.files import FILE, SECRET_FILES, pointers
from mosq.config.plugin import DYNAMIC_SECURITY, all_plugins
from mosq.tools.backup.archive import CONFIG, STORE, BackupError
from mosq.tools.db.store import SEGMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from mosq.config.model import Config

STREAMS, CONSUMERS, INDEX_END = "streams", "consumers", ".idx"
TRIES = 100
SECRETS = (*SECRET_FILES, "config_file")        # config_file: password hashes of dynamic security


def config_files(path: str, config: "Config", with_secrets: bool) -> tuple[list[str], list[str]]:
    """Return the files of a configuration by absolute path, and those that the backup leaves out, with the reason."""
    found, left_out = [os.path.abspath(path), *_included(path)], []
    for pointer in pointers(config):
        if pointer.kind != FILE:
            left_out.append(f"{pointer.path} (folder of {pointer.option})")
        elif pointer.option in SECRETS and not with_secrets:
            left_out.append(f"{pointer.path} (secret)")
        elif not pointer.readable:
            left_out.append(f"{pointer.path} ({pointer.problem() or 'not a regular file'})")
        else:
            found.append(os.path.abspath(pointer.path))
    readable_directory(config)
    for plugin in all_plugins(config):
        if plugin.kind == DYNAMIC_SECURITY and os.path.isfile(plugin.directory_files()[0]):
            if with_secrets:
                found.append(os.path.abspath(plugin.directory_files()[0]))
            else:
                left_out.append(f"{plugin.directory_files()[0]} (secret)")
        elif plugin.path.endswith(".py"):
            found.append(os.path.abspath(plugin.path))
    return list(dict.fromkeys(found)), list(dict.fromkeys(left_out))


def _included(path: str) -> list[str]:
    """Return the files of `include_dir` lines."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        folders = [line.split(None, 1)[1].strip() for line in file if line.split(None, 1)[:1] == ["include_dir"]
                   and len(line.split(None, 1)) > 1]
    return [os.path.abspath(os.path.join(folder, name)) for folder in folders if os.path.isdir(folder)
            for name in sorted(os.listdir(folder)) if name.endswith(".conf") and name != ".conf"]


def config_name(path: str) -> str:
    """Return the name of a file of the configuration in the archive."""
    return CONFIG + path.lstrip("/")


class OpenFiles:
    """Open files by their name in the archive, in the order in which they are copied."""

    def __init__(self) -> None:
        self.files: dict[str, BinaryIO] = {}

    def add(self, name: str, path: str) -> None:
        """Open a file. Raises OSError."""
        self.files[name] = open(path, "rb")     # noqa: SIM115  # close() closes it
        if not stat.S_ISREG(os.fstat(self.files[name].fileno()).st_mode):
            raise BackupError(f"{path} is not a regular file.")

    def total_bytes(self) -> int:
        """Return the sum of the present sizes."""
        return sum(os.fstat(file.fileno()).st_size for file in self.files.values())

    def close(self) -> None:
        """Close all files."""
        for file in self.files.values():
            file.close()
        self.files.clear()


def open_store(folder: str, into: OpenFiles) -> None:
    """Open the segments of a store as of one moment. Raises BackupError."""
    for _ in range(TRIES):
        names = _segments(folder)
        opened = OpenFiles()
        try:
            for name in names:
                opened.add(f"{STORE}{name}", os.path.join(folder, name))
        except FileNotFoundError:               # the broker has removed the oldest one
            opened.close()
            continue
        except BaseException:
            opened.close()
            raise
        if names[:1] == _segments(folder)[:1]:
            into.files.update(opened.files)
            return
        opened.close()
    raise BackupError(f"{folder}: the broker removed old segments {TRIES} times while they were opened. Try again.")


def _segments(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(SEGMENT))


def open_streams(folder: str, into: OpenFiles, marks_only: bool) -> None:
    """Open the marks of consumers, or all other files of the streams. Retention may remove a file before it is
    opened: it is then older than the backup."""
    base = os.path.join(folder, STREAMS)
    for stream in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        place = os.path.join(base, stream, CONSUMERS) if marks_only else os.path.join(base, stream)
        try:
            names = sorted(os.listdir(place), key=_rank)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            path = os.path.join(place, name)
            if name == "lock" or name.startswith(".") or not os.path.isfile(path):
                continue
            try:
                into.add(f"{STORE}{os.path.relpath(path, folder)}", path)
            except FileNotFoundError:
                continue


def _rank(name: str) -> tuple[int, str]:
    """Sort marks before indices before segments: none of them may name what the file behind it lacks."""
    return (0 if name.startswith("mark.") else 1 if name.endswith(INDEX_END) else 2), name
