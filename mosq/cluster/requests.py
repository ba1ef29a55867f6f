"""The requests of a node to Redis, and the answers. `mosq/cluster/scripts.py` has the scripts that carry them out."""

from typing import NamedTuple

# status of an answer
DONE = "done"                   # also if an earlier copy of the request did it
CHANGED = "changed"             # the entry or the beat is another one than expected: another node was faster
USED = "used"                   # another run has the name
UNKNOWN = "unknown"             # Redis does not know this run; a server that lost its last writes may forget one
MISSING = "missing"             # there is no cluster of this name: Redis has lost it, or it was never created
ANOTHER = "another"             # the cluster of this name is another one than at the start of this node


class Look(NamedTuple):
    """Read all. Changes nothing."""


class Join(NamedTuple):
    """Become a node. `expected`: the beat of an earlier run that has died; empty: the name is new."""

    expected: str
    announcement: str


class Beat(NamedTuple):
    """Show that this node lives, and read all."""

    number: int
    announcement: str           # empty: as before


class Change(NamedTuple):
    """Replace the entry of a worker, if it is as expected. A claim and a return are both changes. `source`: the server
    whose view led to it, which alone may carry it out; empty: any."""

    worker: int
    expected: str
    entry: str
    source: str = ""


class Leave(NamedTuple):
    """Stop being a node. A node without workers leaves. `expected`: the beat that the node still has, as another
    program that removes it has read it; empty: any of this run."""

    expected: str = ""


class Send(NamedTuple):
    """Send this run of a node away: it gives its workers to others, and starts none. Or let it come back. An operator
    asks for it."""

    away: bool


class Note(NamedTuple):
    """Write what workers report about themselves, and read what all have reported. No node acts on it."""

    fields: tuple[tuple[int | str, str], ...] = ()      # worker, or a field that stays (scripts.py); text


class Inspect(NamedTuple):
    """Read the setting of Redis that may change at any time, and that may cost messages."""


Request = Inspect | Look | Join | Beat | Change | Leave | Send | Note


class View(NamedTuple):
    """The content of Redis at one moment."""

    source: str                 # identity of the server, and of its time as the primary
    beats: dict[str, str]       # by the name of the node
    announcements: dict[str, str]
    workers: dict[int, str]     # without those that never ran
    away: dict[str, str]        # node -> the run that was sent away
    document: str = ""          # stamp of the document of dynamic security; empty: there is none


class Answer(NamedTuple):
    status: str
    view: View | None = None    # of Look and Beat
    beat: str = ""              # of a Join whose name is used: the beat of the other run
    figures: dict[int, str] | None = None       # of Note: those of all workers
    options: dict[str, str] | None = None       # of Note: those of all nodes
    warning: str = ""           # of Inspect: a setting that is wrong; "" if none is
