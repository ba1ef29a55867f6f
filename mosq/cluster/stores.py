"""The store of a worker as Redis has it, and the parts of it that another program has deleted or cut.

The head has the length of each content, as the operations of the worker have left it (cext/redis/scripts.pyx), so a
content that is shorter has lost its end. A store of which a part is missing is not opened: that would hide the loss.
A process of an older version notes no lengths, so they count only if the last operation has noted them (`sized`). Each
claim notes all of them again.
"""

from typing import NamedTuple

from mosq.cluster.scripts import SEGMENT, STORE_FOLDER, keys_of, keys_of_store, store_mark, store_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LOCK = f"{STORE_FOLDER}/lock"   # the number of a process; the next one writes its own, so none of it can be lost
OPERATIONS_OF_FILE = 4          # for each file of a new store, at most
DIGITS_MAX = 20                 # of a token or a number


class File(NamedTuple):
    """A file of a store. `header`: of a segment: id of the store, number, base and tail; empty if it has none."""

    name: str
    content: str
    length: int
    header: tuple[str, ...]


class Cut(NamedTuple):
    """A content that is shorter than its worker has left it."""

    name: str                   # of the file
    key: str                    # of the content
    length: int                 # that it has; 0: the key was deleted
    expected: int


class Store(NamedTuple):
    """The store of a worker."""

    head: dict[str, str]
    gone: list[str]             # keys of contents that wait for their removal
    files: list[File]

    @property
    def is_sized(self) -> bool:
        """Return whether the lengths in the head are those after the last operation."""
        return self.head.get("sized") == f"{self.head.get('token')} {self.head.get('number')}"

    def cuts(self, name: str) -> "Iterator[Cut]":
        """Return the contents of the store `name` that are shorter than they were, by the names of their files."""
        prefix = keys_of_store(name)[-1]
        for file in sorted(self.files) if self.is_sized else ():
            noted = self.head.get(prefix + file.content, "")
            if file.name != LOCK and noted.isdecimal() and file.length < int(noted):
                yield Cut(file.name, prefix + file.content, file.length, int(noted))

    @property
    def segments(self) -> list[File]:
        """Return the files of the log."""
        return [file for file in self.files if file.name.startswith(SEGMENT)]

    @property
    def is_empty(self) -> bool:
        """Return whether no segment has a content although one must. A process can end between the first operations."""
        segments = self.segments
        first = OPERATIONS_OF_FILE * (len(self.files) - len(segments) + 1)  # until the first segment has content
        return bool(segments) and int(self.head["number"]) > first and not any(file.length for file in segments)

    def unnamed(self, name: str) -> list[str]:
        """Return the keys of contents that the store `name` has, and whose names were deleted."""
        prefix = keys_of_store(name)[-1]
        known = {prefix + file.content for file in self.files} | set(self.gone)
        return sorted(key for key in self.head if self.is_sized and key.startswith(prefix) and key not in known)


def store_of(answer: "Any") -> Store:
    """Return the answer to the script STORE as a store, in texts or in bytes."""
    head, gone, files = _texts(answer)
    return Store(dict(zip(head[::2], head[1::2], strict=True)), gone,
                 [File(file, content, int(length), tuple(header)) for file, content, length, header in files])


def _texts(value: "Any") -> "Any":
    if isinstance(value, list):
        return [_texts(one) for one in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def damage_of(store: Store, cluster: str, id: str, worker: int) -> str:
    """Return what is missing in the store of a worker, from 1, that was made once, and what an operator can do about
    it; "" if nothing is. `id`: of the cluster."""
    name = store_name(cluster, id, worker)
    keys = f"mosq:{{{name}}}:*"
    forget = f"redis-cli HDEL '{keys_of(cluster)[0]}' '{store_mark(worker)}'"
    if not store.head:
        return (f"Redis has no store of worker {worker} any more, and it had one: the keys {keys} were deleted, with "
                f"acknowledged messages. Restore the data of Redis; to go on without them, with an empty store: delete "
                f"all keys {keys} that are left, also while the worker runs, then {forget}")
    found, rest = _part(store, name)
    if not found:
        return ""
    return (f"the store of worker {worker} in Redis is damaged: {found}, with acknowledged messages. Restore the data "
            f"of Redis; to go on without them, with an empty store: delete all keys {keys}, also "
            f"while the worker runs, then {forget}{rest}")


def _part(store: Store, name: str) -> tuple[str, str]:
    """Return the part of a store that is missing, and how to go on with the rest."""
    head, names, _, contents = keys_of_store(name)
    for field in ("token", "number"):
        value = store.head.get(field, "")
        if not (value.isascii() and value.isdecimal() and len(value) <= DIGITS_MAX):
            return f"the field {field} of the key {head} was deleted or changed", ""
    if not store.files and store.head.get("number") != "0":
        return f"the key {names} was deleted", ""
    if not store.is_sized and store.is_empty:
        return f"the key {contents}{store.segments[0].content} was deleted", ""
    if unnamed := store.unnamed(name):
        return f"the name of {unnamed[0]} was deleted from {names}", ""
    cut = next(store.cuts(name), None)
    if cut is None:
        return "", ""
    if not cut.length:
        return f"the key {cut.key} was deleted", ""
    return (f"the key {cut.key} has {cut.length} bytes, and had {cut.expected}",
            f"; to go on with the rest: redis-cli HDEL '{head}' '{cut.key}'")
