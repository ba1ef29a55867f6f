"""Read and write stores on disk for `mosq db`.

Reading takes no lock and changes nothing, so it works while a broker runs: records that are just being written are not
seen yet, or look torn. Writing takes the store's lock, and is refused while a broker has it.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from mosq.tools.db import kinds
from mosq.tools.db.mark import ASIDE, LAYOUT, REMOVED, REPLACED, RESTORED, WORKER, sync_folder
from mosq.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # slices of (lsn, kind, flags, body)
    Give = Callable[[list[tuple[int, int, int, bytes]]], None]

SEGMENT = "segment."
LOCK = "lock"
STORE = ".store"  # end of the name of the broker's store folder: mosq/server/storage.py
FORMAT = 1
BATCH_BYTES = 1 << 20
WAIT_S = 60


class StoreError(Exception):
    """State why something cannot be done with a store, where, and what was expected."""


def reason(error: Exception) -> str:
    """Return the text of an error, with the file for an OSError."""
    if isinstance(error, OSError) and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


class Source(Protocol):
    """Describe what the commands read."""

    path: str

    def scan(self, give: "Give") -> dict[str, Any]:
        """Pass on every committed record in log order; return the losses (the fields of StoreLoss)."""

    def total_bytes(self) -> int:
        """Return the size of all files of the store."""


def segment_files(path: str) -> list[str]:
    """Return the files of a store in a directory."""
    try:
        return sorted(name for name in os.listdir(path) if name.startswith(SEGMENT))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; expected a directory with a store of mosq in it") from None


def worker_folders(path: str) -> dict[int, str]:
    """Return the folders of workers in a directory, by the number of the worker. Raises OSError."""
    ends = [name[len(WORKER):] for name in os.listdir(path) if name.startswith(WORKER)]
    numbers = sorted(int(end) for end in ends if end.isdecimal())
    return {number: os.path.join(path, f"{WORKER}{number}") for number in numbers}


class StoreSource:
    def __init__(self, path: str) -> None:
        files = segment_files(path)
        inside = [name for name in os.listdir(path) if name.endswith(STORE)] if not files else []
        if len(inside) == 1:  # the folder of persistence_location
            path = os.path.join(path, inside[0])
            files = segment_files(path)
        self.path = path
        workers = [name for name in os.listdir(path) if name.startswith(WORKER)] if not files else []
        if workers:
            raise StoreError(f"{path}: here are the stores of {len(workers)} workers; expected the folder of one of "
                             f"them, such as {os.path.join(path, min(workers))}")
        if not files:
            raise StoreError(f"{path}: no {SEGMENT}* files; expected a directory with a store of mosq in it")

    def scan(self, give: "Give", from_lsn: int = 0) -> dict[str, Any]:
        """Pass on the records from the end of an earlier scan on (`end_lsn`). They are all if `tail_lsn` is not behind
        it."""
        from mosq._core import scan

        failed: list[BaseException] = []

        def given(several: list[tuple[int, int, int, bytes]]) -> None:
            try:
                give(several)
            except BaseException as error:
                failed.append(error)
                raise

        try:
            loss = dict(scan(self.path, given, from_lsn=from_lsn))
        except OSError as error:
            if error in failed:  # not an error of the store: a closed pipe
                raise
            raise StoreError(str(error)) from None
        return loss

    def total_bytes(self) -> int:
        total = 0
        for name in segment_files(self.path):
            try:
                total += os.stat(os.path.join(self.path, name)).st_size
            except OSError:  # a running broker deleted it
                continue
        return total


def sources_of(path: str) -> dict[int, StoreSource]:
    """Return the stores in a folder by the number of their worker; 0 for that of a broker that is one process. Workers
    that have no store yet are left out. Raises StoreError and OSError."""
    folders = {} if segment_files(path) else worker_folders(path)
    if not folders:
        return {0: StoreSource(path)}
    return {number: StoreSource(folder) for number, folder in folders.items() if segment_files(folder)}


def open_store(path: str) -> Any:
    from mosq._core import PyStore

    lock = os.path.join(path, LOCK)
    is_locked_first = os.path.isdir(path) and not os.path.exists(lock)
    try:
        store = PyStore(path, create=True)
    except OSError as error:
        raise StoreError(str(error)) from None
    if is_locked_first:
        give_to_owner(lock, path)       # root may have made it, and the broker must be able to open it
    return store


def write_store(path: str, records: "Iterable[tuple[int, bytes]]", made_by: str, force: bool, like: str) -> str | None:
    """Write a new store of these records.

    It is written in a folder of its own and moved into place when it is on the disk. So an import that fails
    leaves nothing behind. If root writes it, the store gets the owner of the file `like`: the user that the broker will
    run as. Return the folder of the old store, or None if there was none.
    """
    import shutil  # slow to load, and a process that only reads a store has no use for it

    is_new = not os.path.exists(path)
    places = locked(path)
    stage = os.path.join(path, f"import.{os.getpid()}")
    try:
        found = _records_in(path)
        if found and not force:
            raise StoreError(f"{path}: there is a store with {found}; expected an empty one, or --force to replace it")
        _write(stage, records, made_by)
        kept = _put_in_place(path, stage)
        _give(path, like)
        is_new = False
        return kept
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if is_new:  # the import failed
            _remove_empty(path)
        for place in places:
            place.close()


def _remove_empty(path: str) -> None:
    """Remove a store's folder that has only the lock, which this process holds."""
    try:
        if os.listdir(path) == [LOCK]:
            os.unlink(os.path.join(path, LOCK))
            os.rmdir(path)
    except OSError:
        pass


def give_to_owner(path: str, like: str) -> None:
    """Give a file that root wrote to the owner of the file `like`."""
    if os.geteuid() == 0:
        owner = os.stat(like)
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _give(path: str, like: str) -> None:
    for name in (LOCK, *segment_files(path), "."):
        give_to_owner(os.path.join(path, name), like)


def set_aside(path: str) -> str:
    """Move the files of a store, or the stores of workers, into a folder below their own; return that folder. Raises
    StoreError and OSError."""
    places = locked(path)
    try:
        return _move_old(path, REMOVED) or path
    finally:
        for place in places:
            place.close()


def finish_aside(path: str) -> None:
    """Continue to set the stores of workers aside after a kill. Raises OSError."""
    left = worker_folders(path)
    if not left or os.path.exists(os.path.join(path, LAYOUT)):
        return
    asides = [os.path.join(path, name) for name in os.listdir(path) if name.startswith(ASIDE)]
    for kept in asides:
        if os.path.exists(os.path.join(kept, LAYOUT)) and not any(
                os.path.exists(os.path.join(kept, os.path.basename(folder))) for folder in left.values()):
            _move(path, kept, [os.path.basename(folder) for folder in left.values()])
            return


def locked(path: str) -> list[Any]:
    """Open a store, and those of workers in its folder, for their locks. Raises StoreError; then none is open."""
    places: list[Any] = []
    try:
        folders = worker_folders(path).values() if os.path.isdir(path) else ()
        for folder in (path, *folders):
            place = open_store(folder)
            places.append(place)
    except BaseException:
        for place in places:
            place.close()
        raise
    return places


def _records_in(path: str) -> str:
    """Describe the content of a store; "" if it is empty."""
    workers = worker_folders(path)
    files = segment_files(path)
    if not files:
        return f"{len(workers)} workers" if any(map(segment_files, workers.values())) else ""
    loss = StoreSource(path).scan(lambda _: None)
    whole = not loss["n"] and not loss["unreadable"] and not loss["foreign"]
    return "" if whole and not loss["records"] else f"{loss['records']:,} records"


class NewStore:
    """A store that is being written. Call `close` in any case; before `finish` returns, nothing of it counts."""

    def __init__(self, path: str, made_by: str) -> None:
        from mosq._core import record_encode

        self.path = path
        self._store = open_store(path)
        try:
            self._store.recover()
            self._store.start()
        except BaseException:
            self._store.close()
            raise
        meta = {
            "format": str(FORMAT),
            "broker": f"mosq {VERSION}",
            "made_by": made_by,
            "made_at": time.strftime("%FT%TZ", time.gmtime()),
        }
        self._store.append(kinds.META, record_encode(kinds.META, {k.encode(): v.encode() for k, v in meta.items()}))

    def add(self, kind: int, body: bytes) -> None:
        """Append a record. Raises StoreError."""
        self._store.append(kind, body)
        if self._store.open_bytes() >= BATCH_BYTES:
            self._store.seal()
            _wait(self._store, lambda: bool(self._store.room()))

    def finish(self) -> None:
        """Return when all is on the disk. Raises StoreError."""
        end = self._store.seal(True)
        _wait(self._store, lambda: self._store.synced() >= end)

    def close(self) -> str | None:
        """End the storage thread; return why something could not be written."""
        why: str | None = self._store.close()
        return why


def _write(stage: str, records: "Iterable[tuple[int, bytes]]", made_by: str) -> None:
    store = NewStore(stage, made_by)
    try:
        for kind, body in records:
            store.add(kind, body)
        store.finish()
    finally:
        why = store.close()
    if why:
        raise StoreError(f"{stage}: {why}")


def _wait(store: Any, done: "Callable[[], bool]") -> None:
    from mosq._core import NEWS

    failed = NEWS["full"] | NEWS["error"]
    while not done():
        try:
            news = store.wait(WAIT_S)
        except TimeoutError:
            raise StoreError(f"the disk took longer than {WAIT_S} s; {store.error() or 'no error reported'}") from None
        if news & failed:
            raise StoreError(store.error() or "no space left; expected room for the whole store")


def _move_old(path: str, what: str) -> str | None:
    """Move the segments of a store, or the stores of workers, into a new folder; return it, or None if there are
    none."""
    old = segment_files(path)
    # without the layout the others do not count any more, and the next start moves the rest (finish_aside)
    old += [name for name in (LAYOUT, RESTORED) if os.path.exists(os.path.join(path, name))]
    old += [os.path.basename(folder) for folder in worker_folders(path).values()]
    if not old:
        return None
    kept = os.path.join(path, f"{what}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.{os.getpid()}")
    os.mkdir(kept, 0o700)
    _move(path, kept, old)
    return kept


def _move(path: str, kept: str, names: list[str]) -> None:
    for name in names:
        os.rename(os.path.join(path, name), os.path.join(kept, name))


def _put_in_place(path: str, stage: str) -> str | None:
    kept = _move_old(path, REPLACED)
    for name in segment_files(stage):
        os.rename(os.path.join(stage, name), os.path.join(path, name))
    sync_folder(path)
    return kept
