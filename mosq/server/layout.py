"""The stores of a broker: one, or one for each worker (`cluster_local N`), and the change from one number to another.

    NAME.store/segment.*    the store of one process
    NAME.store/workers      {"workers": 2, "key": "...", "stores": "..."}: the number of workers, the key that names the
                            worker of a client id, and a name that all stores have in a file `of`
    NAME.store/worker.1/    the store of the first worker

A session is in the store of its worker, so another number needs other stores (mosq/tools/db/divide.py). They replace
the old ones in four steps, of which each is one rename or can be done again. A start after a kill continues:

    dividing/   the new stores are written                              a start removes it: the old stores count
    divided/    they are complete, and on the disk                      the new ones count from this rename on
    before/     the old stores are moved here
    placing/    was divided/: the new stores are moved from here to their places, `workers` last; then before/ goes

A file `restored` says that the stores come from a backup: each ends at a moment of its own. The start settles what was
on its way between them, by the same change, to the same or to another number.

Imported before the broker listens, so it imports almost nothing.
"""

import os

from mosq.log_types import INFORMATION, NOTICE, WARNING
from mosq.server import handover
from mosq.tools.db.mark import LAYOUT, REPLACED, RESTORED, WORKER, sync_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.tools.db.divide import Division

    Report = Callable[[int, str], None]

FILE = LAYOUT
OF = "of"                       # in the folder of each worker
DIVIDING, DIVIDED, BEFORE, PLACING = "dividing", "divided", "before", "placing"
UNFINISHED = (DIVIDING, DIVIDED, BEFORE, PLACING)
KEEP = "keep"                   # in BEFORE: the old stores had damaged places, and stay
KEY_BYTES, NAME_BYTES = 16, 8
SEGMENT_BYTES = 16 << 20        # of a file of a store
REPORT_EVERY_S = 5.0


class Layout:
    """The number of workers, the key, and the name of their stores."""

    def __init__(self, workers: int, key: bytes, stores: str) -> None:
        self.workers, self.key, self.stores = workers, key, stores


def changes(config: "Config", root: str) -> bool:
    """Return whether `arrange` may have to write stores: it needs modules then (mosq/server/process.py). Raises
    OSError."""
    try:
        names = os.listdir(root)
    except OSError:
        return config.cluster_local > 1
    if any(name in UNFINISHED for name in names):
        return True
    found = read_layout(root) if FILE in names else None
    if found is not None and RESTORED in names:
        return True
    return config.cluster_local != (found.workers if found is not None else 1)


def arrange(config: "Config", root: str, report: "Report") -> bytes:
    """Make the stores in `root` those of the configured number of workers; return the key, b"" for one process. Raises
    OSError with the problem and what to do, and ValueError for a file of Mosquitto that cannot be taken over. Then the
    stores are as before."""
    count = config.cluster_local
    if os.path.isdir(root):
        _finish(root, report)
        found = read_layout(root)
        if found is None:
            _check_left(root)
        else:
            check(root, found)
            if count > 1:                       # else `open_store` does it with the joined store
                handover.settle(config, root, report)
                found = read_layout(root)       # None: the stores are set aside
    elif count > 1:
        found = None
        try:
            os.makedirs(root, 0o700)
        except OSError as error:
            raise OSError(f"{root} cannot be made: {error.strerror}. Workers need a folder for their stores.") from None
    else:
        return b""
    if found is not None and found.workers == count and not is_restored(root):
        return found.key
    if found is None and count > 1:
        handover.settle(config, root, report)   # what a start with one process does first
        if not handover.has_segments(root):
            return _first(root, count)
    if found is None and count == 1:
        return b""
    return _change(root, found, count, report)


def _check_left(root: str) -> None:
    """Continue to set the stores of workers aside after a kill. Raises OSError if there are such stores without the
    file of their layout."""
    if not any(name.startswith(WORKER) for name in os.listdir(root)):
        return
    from mosq.tools.db.store import finish_aside, segment_files, worker_folders

    finish_aside(root)
    if any(segment_files(folder) for folder in worker_folders(root).values()):
        raise OSError(f"{root} has the stores of workers, and the file `{FILE}` is missing. Without the key in it, no "
                      "session can be found: restore the file from a backup.")


def is_restored(root: str) -> bool:
    """Return whether the stores come from a backup, and no start has settled them."""
    return os.path.exists(os.path.join(root, RESTORED))


def mark_restored(root: str) -> None:
    """Let the next start settle what is between the stores. Raises OSError."""
    _write(os.path.join(root, RESTORED), "")


def read_layout(root: str) -> Layout | None:
    """Return the layout of the stores in a folder; None if they are not those of workers. Raises OSError."""
    path = os.path.join(root, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            import json  # not for one process

            found = json.load(file)
        layout = Layout(int(found["workers"]), bytes.fromhex(found["key"]), str(found["stores"]))
        if layout.workers < 2 or len(layout.key) != KEY_BYTES:
            raise ValueError("not a number of workers, or not a key")
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OSError(f"{path} cannot be read: {error}. Without the key in it, no session can be found: restore the "
                      "file from a backup.") from None
    return layout


def _first(root: str, count: int) -> bytes:
    """Make the layout of a broker that has no store yet."""
    layout = _new_layout(count)
    try:
        for i in range(count):
            os.makedirs(os.path.join(root, f"{WORKER}{i + 1}"), 0o700, exist_ok=True)
        _write_layout(root, root, layout)
    except OSError as error:
        raise OSError(f"{root} cannot be written: {error.strerror}. Workers need a folder for their stores.") from None
    return layout.key


def _new_layout(count: int) -> Layout:
    return Layout(count, os.urandom(KEY_BYTES), os.urandom(NAME_BYTES).hex())


def _write_layout(root: str, stores: str, layout: Layout) -> None:
    """Write the file of the layout to `root`, and a file to the folder of each worker in `stores`."""
    import json

    for i in range(layout.workers):
        folder = os.path.join(stores, f"{WORKER}{i + 1}")
        _write(os.path.join(folder, OF), f"{layout.stores} {i + 1}\n")
        sync_folder(folder)
    text = json.dumps({"workers": layout.workers, "key": layout.key.hex(), "stores": layout.stores})
    temporary = os.path.join(root, f"{FILE}.new")
    _write(temporary, text)
    os.rename(temporary, os.path.join(root, FILE))
    sync_folder(root)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)


def check(root: str, layout: Layout) -> None:
    """Raise OSError if the folders are not those that belong to the layout."""
    count = layout.workers
    there = {name for name in os.listdir(root) if name.startswith(WORKER)}
    expected = [f"{WORKER}{i + 1}" for i in range(count)]
    for name in expected:
        if name not in there:
            raise OSError(f"{root}/{FILE} names {count} workers, and the folder {name} is missing. Expected the folder "
                          f"from a backup, or an empty folder of that name: then its sessions are lost.")
    more = sorted(there.difference(expected))
    if more:
        raise OSError(f"{root}/{FILE} names {count} workers, and there is a folder {more[0]}. If the number in the "
                      "file was changed by hand, change it back; the start divides the stores by itself if "
                      "`cluster_local` has another number.")
    for i, name in enumerate(expected):
        try:
            with open(os.path.join(root, name, OF), encoding="utf-8") as file:
                of = file.read(100)
        except FileNotFoundError:
            continue
        if of.split() != [layout.stores, str(i + 1)]:
            raise OSError(f"{root}/{name} is the store of another broker or of another worker. Expected the folder "
                          "that belongs to this place.")


# -- the change

def _change(root: str, found: Layout | None, count: int, report: "Report") -> bytes:
    from mosq.tools.db.store import StoreError, open_store

    old = found.workers if found is not None else 1
    folders = [os.path.join(root, f"{WORKER}{i + 1}") for i in range(old)] if found is not None else [root]
    layout = _new_layout(count) if count > 1 else None
    locks = []
    try:
        for folder in dict.fromkeys([root, *folders]):
            locks += [open_store(folder)]   # for its lock
        _divide(root, [folder for folder in folders if handover.has_segments(folder)], found, layout, report)
    except StoreError as error:
        raise OSError(f"The stores in {root} cannot be changed from {_workers(old)} to {_workers(count)}: {error}"
                      f"{'' if str(error).endswith('.') else '.'} They are as before.") from None
    finally:
        for lock in locks:
            lock.close()
    _finish(root, report)
    return layout.key if layout is not None else b""


def _workers(count: int) -> str:
    return "one process" if count == 1 else f"{count} workers"


def _divide(root: str, sources: list[str], found: Layout | None, layout: Layout | None, report: "Report") -> None:
    """Write the new stores, and let them count."""
    import shutil
    import time

    from mosq.tools.db.divide import Division
    from mosq.tools.db.partly import Spread
    from mosq.tools.db.store import StoreError

    old = Spread(found.workers, found.key) if found is not None else Spread(1, b"")
    new = Spread(layout.workers, layout.key) if layout is not None else Spread(1, b"")
    stage = os.path.join(root, DIVIDING)
    began_s = shown_s = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= REPORT_EVERY_S:
            shown_s = now_s
            report(INFORMATION, f"{what} the stores: {100 * done // max(total, 1)} %.")

    restored = is_restored(root)
    what = "Dividing" if new.n > 1 else "Joining"
    report(NOTICE, f"{what} the stores in {root}: from {_workers(old.n)} to {_workers(new.n)}"
                   f"{', because they come from a backup' if restored else ''}.")
    targets = [stage] if layout is None else [os.path.join(stage, f"{WORKER}{i + 1}") for i in range(new.n)]
    need = 0
    try:
        os.mkdir(stage, 0o700)
        for target in targets:
            os.makedirs(target, 0o700, exist_ok=True)
        places = {os.path.join(root, f"{WORKER}{i + 1}"): i for i in range(old.n)}
        division = Division(sources, old, targets, new, progress, [places.get(one, 0) for one in sources], restored)
        need = 2 * SEGMENT_BYTES * new.n + division.live_bytes()
        if _free(root) < need:
            raise StoreError("No space left on device")
        division.write(f"the change to {_workers(new.n)}")
        if layout is not None:
            _write_layout(stage, stage, layout)
        if not division.whole():
            _write(os.path.join(stage, KEEP), "")
        sync_folder(stage)
    except (StoreError, OSError) as error:
        shutil.rmtree(stage, ignore_errors=True)
        full = _is_full(error)
        raise StoreError(f"{getattr(error, 'strerror', None) or error}" + (
            f". Expected about {need / 1e6:,.0f} MB of free space; there are {_free(root) / 1e6:,.0f} MB."
            if full else "")) from None
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    os.rename(stage, os.path.join(root, DIVIDED))
    sync_folder(root)
    _report(division, "divided" if new.n > 1 else "joined", time.monotonic() - began_s, report)


def _is_full(error: Exception) -> bool:
    from errno import EDQUOT, ENOSPC

    return any(os.strerror(number) in str(error) for number in (ENOSPC, EDQUOT)) or "no space left" in str(error)


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _report(division: "Division", done: str, took_s: float, report: "Report") -> None:
    report(NOTICE, f"The stores are {done}: {division.sessions:,} sessions and {division.retained:,} retained "
                   f"messages in {took_s:.1f} s.")
    for line in division.warnings:
        report(WARNING, f"Warning: {line}")


def _finish(root: str, report: "Report") -> None:
    """Continue a change that a kill has interrupted, and remove what is left of it. Raises OSError."""
    names = set(os.listdir(root)).intersection(UNFINISHED)
    if not names:
        return
    import shutil

    from mosq.tools.db.store import StoreError, open_store

    try:
        lock = open_store(root)     # another process may be changing it
    except StoreError as error:
        raise OSError(str(error)) from None
    try:
        before, divided, placing = (os.path.join(root, name) for name in (BEFORE, DIVIDED, PLACING))
        if DIVIDING in names:
            shutil.rmtree(os.path.join(root, DIVIDING))
        if os.path.isdir(divided):
            os.makedirs(before, 0o700, exist_ok=True)
            _move(root, before)
            if os.path.exists(os.path.join(divided, KEEP)):
                os.rename(os.path.join(divided, KEEP), os.path.join(before, KEEP))
            sync_folder(before)
            sync_folder(root)
            os.rename(divided, placing)
            sync_folder(root)
        if os.path.isdir(placing):
            _move(placing, root)
            sync_folder(root)
            shutil.rmtree(placing)
        if os.path.isdir(before):
            _drop(root, before, report)
        sync_folder(root)
    finally:
        lock.close()


def _move(source: str, target: str) -> None:
    """Move the stores of a folder to another one; `workers` last."""
    names = [name for name in os.listdir(source) if name.startswith((handover.SEGMENT, WORKER)) or name == RESTORED]
    for name in [*names, FILE]:
        if os.path.lexists(os.path.join(source, name)):
            os.rename(os.path.join(source, name), os.path.join(target, name))


def _drop(root: str, before: str, report: "Report") -> None:
    """Remove the old stores, or set them aside if they had damaged places."""
    import shutil
    import time

    if not os.path.exists(os.path.join(before, KEEP)):
        shutil.rmtree(before)
        return
    kept = os.path.join(root, f"{REPLACED}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.{os.getpid()}")
    os.rename(before, kept)
    report(WARNING, f"Warning: the stores had damaged places, which are lost. The old stores are now in {kept}; "
                    "`mosq db check` shows more.")
