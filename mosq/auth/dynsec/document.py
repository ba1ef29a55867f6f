"""A version of the document of dynamic security of a cluster, in memory that the processes of a node share. The content
is that of the file (store.py). Redis has the newest version (mosq/cluster/scripts.py)."""

import os
import secrets
from typing import NamedTuple

from mosq.config.plugin import DYNAMIC_SECURITY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.config.errors import Origin
    from mosq.config.plugin import Plugin

ID_BYTES = 8                    # of the random part of a stamp
DIGITS_MAX = 18                 # of the number of a version
BYTES_MAX = 4 << 20             # of the content: each change sends it to Redis and to each replica


class First(NamedTuple):
    """The files of dynamic security on a node. They count only while the cluster has no document."""

    path: str
    password_init_file: str | None
    named_at: "Origin | None"


class Document(NamedTuple):
    """A version. `stamp`: its number, and digits that no other version has; `fd`: a memory file, which no process
    changes after it was made."""

    stamp: str
    fd: int

    @property
    def version(self) -> str:
        """Return the number of the version."""
        return self.stamp.partition(".")[0]

    def content(self) -> bytes:
        """Return the content. All processes have the same descriptor, so its place is not used."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def close(self) -> None:
        """Close the descriptor of this process."""
        os.close(self.fd)


def first_of(plugins: "Iterable[Plugin]") -> First | None:
    """Return the files of dynamic security; None if no plugin has them. Raises ConfigError."""
    line = next((plugin for plugin in plugins if plugin.kind == DYNAMIC_SECURITY), None)
    return None if line is None else First(*line.directory_files(), line.origin)


def document_of(stamp: str, content: bytes) -> Document:
    """Return a new document. Raises OSError."""
    fd = os.memfd_create("mosq-dynsec", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    return Document(stamp, fd)


def next_stamp(stamp: str) -> str:
    """Return the stamp of the version behind one; "": there is none yet."""
    number = stamp.partition(".")[0]
    return f"{int(number or 0) + 1}.{secrets.token_hex(ID_BYTES)}"


def covers(used: str, seen: str) -> bool:
    """Return whether a document is the same as another one, or a later one. `seen` may be damaged."""
    if used == seen or not seen:
        return True
    return is_stamp(seen) and bool(used) and int(used.partition(".")[0]) > int(seen.partition(".")[0])


def is_stamp(text: str) -> bool:
    """Return whether a text of Redis is a stamp."""
    number, _, digits = text.partition(".")
    return number.isascii() and number.isdecimal() and len(number) <= DIGITS_MAX and digits.isalnum()
