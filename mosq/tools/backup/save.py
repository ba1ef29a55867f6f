"""Writes a backup: of a running broker too, without a lock and without its help."""

import os
import stat
import time

from mosq.config.errors import ConfigError
from mosq.config.parser import load_config
from mosq.server.storage import store_place
from mosq.tools.backup.archive import BackupError, Writer
from mosq.tools.backup.sources import OpenFiles, config_files, config_name, open_store, open_streams
from mosq.tools.db.mark import sync_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    # label, bytes of all files -> function for the bytes of each step
    Progress = Callable[[str, int], Callable[[int], None]]

PARTIAL = ".partial"


class Saved:
    """The result of a backup."""

    def __init__(self, members: "dict[str, dict[str, Any]]", left_out: list[str], store: str | None) -> None:
        self.members, self.left_out, self.store = members, left_out, store


def save(conf: str, target: str, with_secrets: bool, force: bool, progress: "Progress") -> Saved:
    """Write the archive `target` (mode 0600) of the broker with the configuration `conf`. Raises BackupError and
    ConfigError; then there is no archive, and an older one of that name is unchanged."""
    try:
        config = load_config(conf)
        folder = os.path.abspath(store_place(config))
        has_store = os.path.isdir(folder) and any(name.startswith("segment.") for name in os.listdir(folder))
        files, left_out = config_files(conf, config, with_secrets)
    except OSError as error:
        raise BackupError(f"{error.filename or conf}: {error.strerror}.") from None
    if os.path.lexists(target) and not force:
        raise BackupError(f"{target} exists. Choose another name, or give --force to replace it.")
    partial = target + PARTIAL
    is_kept = False
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as out:
            os.fchmod(fd, stat.S_IRUSR | stat.S_IWUSR)
            members = _write(out, target.endswith("gz"), conf, files, folder if has_store else None, progress)
            out.flush()
            os.fsync(fd)
        os.rename(partial, target)
        is_kept = True
        sync_folder(os.path.dirname(os.path.abspath(target)))
    except OSError as error:
        advice = "Free some space, or choose another folder." if error.errno == 28 else "The running broker goes on."
        raise BackupError(f"The backup is not written: {error.filename or target}: {error.strerror}. {advice}"
                          ) from None
    finally:
        if not is_kept:
            _remove(partial)
    return Saved(members, left_out, folder if has_store else None)


def _write(                             # parameters: the parts of one archive
        out: "BinaryIO", is_compressed: bool, conf: str, files: list[str], folder: str | None,
        progress: "Progress") -> "dict[str, dict[str, Any]]":
    writer = Writer(out, is_compressed)
    opened = OpenFiles()
    try:
        for path in files:
            opened.add(config_name(path), path)
        if folder is not None:
            open_streams(folder, opened, marks_only=True)
            open_store(folder, opened)
        step = progress("Copying", opened.total_bytes())
        for name, file in opened.files.items():
            writer.add(name, file, step)
        opened.close()
        if folder is not None:
            open_streams(folder, opened, marks_only=False)
            step = progress("Copying streams", opened.total_bytes())
            for name, file in opened.files.items():
                writer.add(name, file, step)
        writer.end({"made_at": time.strftime("%FT%TZ", time.gmtime()), "store": folder,
                    "config": os.path.abspath(conf)})
    finally:
        opened.close()
    return writer.members


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


__all__ = ["BackupError", "ConfigError", "Saved", "save"]
