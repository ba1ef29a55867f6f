"""Decides at the start what counts: the store, or what a persistence plugin has restored (docs/adr/0024).

  the store | the mark of the plugin's copy            | what counts
  ----------+------------------------------------------+--------------------------------------------------------------
  none      |                                          | the plugin: its content becomes the store
  there     | knows the content                        | the store; the plugin gets the difference
  there     | the plugin has restored nothing          | the store; the plugin gets everything
  there     | an event had failed                      | the store; the plugin's content is set aside
  there     | a clean end, and the plugin has given    | the plugin, because another program has written it; the store
            | back before what it had got              | is set aside
  there     | a kill, or no mark, or a plugin that     | undecided: the broker does not start until an operator decides
            | never gave it back                       | (`mosq db prefer`). For a plugin that never gave it back,
            |                                          | `prefer store` holds for good

Nothing is deleted: the one that does not count is set aside as a store, in a folder below the store's own.
"""

import os
import time

from mosq.log_types import NOTICE, WARNING
from mosq.tools.db import copy_mark
from mosq.tools.db.copy_mark import CLEAN, FAILED, LOSSY, MATCHED, WORTHLESS, CopyMark, remove_store
from mosq.tools.db.differences import fingerprint_of
from mosq.tools.db.store import StoreError, segment_files, write_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from mosq.tools.db.kept import Kept

    Report = Callable[[int, str], None]
    Runner = Any    # a plugin with its thread; it has a name

STORE, PLUGIN, BOTH = "store", "plugin", "both"     # BOTH: the store counts, and the plugin's content is set aside
ASIDE = "plugin."                                   # beginning of the names of folders with plugins' contents


def settle(store: str, kept: "Mapping[Runner, Kept]", bridges: "Collection[bytes]",
           report: "Report") -> "dict[Runner, CopyMark]":
    """Apply the table above before the store is opened; return the new marks. Raises OSError."""
    marks = {runner: CopyMark(store, one.path) for runner, one in kept.items()}
    if any(mark.read() and mark.flags & WORTHLESS for mark in marks.values()):
        remove_store(store)             # a crash has interrupted that
    preferred, there = copy_mark.preference(store), os.path.isdir(store) and bool(segment_files(store))
    verdicts = {runner: _verdict(marks[runner], one, preferred) if there else PLUGIN if one else STORE
                for runner, one in kept.items()}
    for runner, verdict in verdicts.items():
        if not verdict:
            raise OSError(refusal(store, runner.name))
    counting = next((kept[runner] for runner, verdict in verdicts.items() if verdict == PLUGIN), None)
    for runner, one in kept.items():
        if verdicts[runner] == BOTH:
            _set_aside(store, one, bridges, report)
    # A crash in between must repeat the same decision: an old store is replaced before the mark knows the content.
    if counting is not None and there:
        _take_over(store, counting, bridges, report)
    for runner, one in kept.items():
        _begin(marks[runner], one, preferred)
    if counting is not None and not there:
        _take_over(store, counting, bridges, report)
    copy_mark.forget_preference(store)
    return marks


def _verdict(mark: CopyMark, kept: "Kept", preferred: str) -> str:
    """Return which one counts; "" if that cannot be decided."""
    if kept and preferred == copy_mark.PLUGIN:
        return PLUGIN
    there = mark.read()
    if not kept or (there and fingerprint_of(kept) in mark.known):
        return STORE
    if there and mark.flags & LOSSY:
        return STORE
    if preferred == copy_mark.STORE or (there and mark.flags & FAILED):
        return BOTH
    return PLUGIN if there and mark.flags & CLEAN and mark.flags & MATCHED else ""


def begin_or_refuse(store: str, name: str, kept: "Kept") -> CopyMark:
    """Begin the mark of a plugin while the broker runs. Raises OSError if its content may be newer than the store."""
    mark = CopyMark(store, kept.path)
    if _verdict(mark, kept, "") != STORE:
        raise OSError(refusal(store, name))
    _begin(mark, kept)
    return mark


def _begin(mark: CopyMark, kept: "Kept", preferred: str = "") -> None:
    """Begin a new mark with what the plugin has restored."""
    content, flags = fingerprint_of(kept), 0
    if mark.read():
        is_known = content in mark.known
        flags = mark.flags & (MATCHED | LOSSY) | (MATCHED if kept and is_known else 0)
        if preferred == copy_mark.STORE and mark.flags & CLEAN and not is_known and not flags:
            flags = LOSSY
    mark.begin([content], flags)


def refusal(store: str, name: str) -> str:
    """Return the error for a content that nothing can be decided about."""
    return (f"Plugin {name} has sessions or messages that the store {store} does not know to be its copy, so it cannot "
            "be decided which of the two is newer. To go on with what the plugin has, run: mosq db prefer plugin "
            f"{store} To go on with the store, run: mosq db prefer store {store} The other one is set aside. Then "
            "start mosq again.")


def has_rows(database: str, wanted: tuple[int, ...]) -> bool:
    """Return whether a database of persist-sqlite has these numbers of rows."""
    from mosq.tools.db.mosquitto_file import FormatError
    from mosq.tools.db.mosquitto_sqlite import rows

    try:
        return rows(database) == wanted
    except (OSError, FormatError):
        return False


def _take_over(store: str, kept: "Kept", bridges: "Collection[bytes]", report: "Report") -> None:
    """Make the content of a plugin the store. Raises OSError."""
    report(NOTICE, f"Taking over what plugin {kept.path} has kept.")
    former = _write(store, kept, bridges, report)
    if former:
        report(WARNING, f"Warning: plugin {kept.path} was written by another program after mosq, so its content "
                        f"counts. The old store is now in {former}.")


def _set_aside(store: str, kept: "Kept", bridges: "Collection[bytes]", report: "Report") -> None:
    """Keep what a plugin has in a store of its own, before it is brought to what the store has. Raises OSError."""
    folder = os.path.join(store, f"{ASIDE}{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.{os.getpid()}")
    _write(folder, kept, bridges, report)
    report(WARNING, f"Warning: plugin {kept.path} had another content than the store {store}, which counts. What the "
                    f"plugin had is now in {folder}.")


def _write(store: str, kept: "Kept", bridges: "Collection[bytes]", report: "Report") -> str | None:
    from mosq.tools.db.mosquitto_import import Import

    imported = Import(kept, time.time(), None, bridges)
    try:
        former = write_store(store, imported.records(), "a persistence plugin", True,
                             os.path.dirname(os.path.abspath(store)))
    except StoreError as error:
        raise OSError(str(error)) from None
    for line in imported.counts.refused[:20]:
        report(WARNING, f"Warning: {line}")
    for line in imported.counts.text(f"taken over from {kept.path}").splitlines():
        report(NOTICE, line)
    return former
