"""Reduces what a process has read of a configuration to two short texts. In a reload each worker reads the files for
itself, so a file that changes while they read would give the workers different configurations. Opens no file.

The parent sends both texts with `check`. The contents of the configuration are compared as they were parsed. The files
that it names are compared by their state: the parent takes it before the first worker reads, each worker takes it
after its own reading. So the same state means that nothing was written between.
"""

import os
from hashlib import sha256
from stat import S_ISDIR, S_ISREG

from mosq.config.plugin import ACL_FILE, PASSWORD_FILE, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.config.model import Config

OF_BROKER = ("acl_file", "password_file", "psk_file")
OF_LISTENER = ("cafile", "capath", "certfile", "keyfile", "crlfile")


class ChangedError(Exception):
    """A process has read something else than the parent."""

    def __init__(self) -> None:
        super().__init__("A file of the configuration has changed while the workers read it.")


def content_of(config: "Config") -> str:
    """Return a text that is the same for the same configuration, in whichever process."""
    digest = sha256()
    for part in _parts(config):
        digest.update(part.encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()


def state_of(config: "Config") -> str:
    """Return a text that changes if a file is written or replaced that each worker reads."""
    digest = sha256()
    for path in sorted(set(_files(config))):
        try:
            found = os.stat(path)
        except OSError as error:
            digest.update(f"{path} {error.errno}\0".encode("utf-8", "backslashreplace"))
            continue
        text = f"{path} {found.st_dev} {found.st_ino}"
        if S_ISREG(found.st_mode) or S_ISDIR(found.st_mode):    # a pipe changes with every reader
            text += f" {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        digest.update(f"{text}\0".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _parts(value: object) -> "Iterator[str]":
    if isinstance(value, (list, tuple)):
        yield f"{len(value)} values"
        for one in value:
            yield from _parts(one)
    elif isinstance(value, dict):
        yield f"{len(value)} names"
        for name, one in value.items():
            yield repr(name)
            yield from _parts(one)
    elif isinstance(value, (set, frozenset)):
        yield from _parts(sorted(value, key=repr))
    elif value is None or isinstance(value, (str, int, float, bytes)):
        yield repr(value)
    else:
        yield type(value).__name__
        names = getattr(value, "__slots__", None) or vars(value)
        for name in names:
            yield name
            yield from _parts(getattr(value, name, None))


def _files(config: "Config") -> "Iterator[str]":
    found: list[object] = [getattr(config, name) for name in OF_BROKER]
    for listener in config.listeners:
        found += [getattr(listener, name) for name in OF_LISTENER]
        found += [listener.security.get(name) for name in OF_BROKER]
    for plugin in all_plugins(config):
        if plugin.kind in (ACL_FILE, PASSWORD_FILE):
            found += [path for _, path in plugin.options]
    return (path for path in found if isinstance(path, str))
