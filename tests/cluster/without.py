"""Members that lack one rule each. The simulator must find each of them (test_simulation.py)."""

from __future__ import annotations

from mosq.cluster.entries import next_token, run_of
from mosq.cluster.member import Member
from mosq.cluster.sight import Observer
from mosq.cluster.terms import Terms
from tests.cluster.world import Options


class NoLease(Member):
    """Runs workers on, however long ago its last beat was confirmed."""

    def check(self, now_s: float) -> None:
        pass


class WallClock(Member):
    """Writes the time of its wall clock as its beat, and compares the beats of others with it."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.observer = WallObserver(self.terms, self)

    def _regular(self):
        self._number = int(self.node.wall() * 1000)
        return super()._regular()


class WallObserver(Observer):
    def __init__(self, terms: Terms, member: Member) -> None:
        super().__init__(terms)
        self.member = member

    def dead(self, name: str) -> bool:
        seen = self._seen.get(name)
        return seen is not None and self.member.node.wall() - int(seen[0].rpartition(" ")[2]) / 1000 >= self._terms.death_s


class SameToken(Member):
    """Starts a worker with the token of its last start."""

    def _next_token(self, token: int) -> int:
        return token or 1


class CountedToken(Member):
    """Has no random bits in its tokens."""

    def _next_token(self, token: int) -> int:
        return next_token(token, 0)


class OwnTokenAgain(Member):
    """Starts its own worker with the same token after a lost lease."""

    def _place(self, view) -> None:
        super()._place(view)
        self._todo = [change._replace(entry=change.expected) if run_of(change.expected.partition(" ")[2].partition(" ")[2]) == self.run
                      and " " in change.entry else change for change in self._todo]


class NoGaps(Member):
    """Counts time in which it could not read as time without a beat."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.observer._is_gap = lambda now_s: False


class OneServer(Member):
    """Does not notice that another server answers, or the same one after a restart."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        see = self.observer.see
        self.observer.see = lambda now_s, source, beats: see(now_s, "server", beats)


class AnyNode(Member):
    """Takes nodes without an address as all others."""

    def _read(self, now_s: float, view) -> None:
        super()._read(now_s, view._replace(announcements={name: text.replace('"address":""', '"address":"10.0.0.99 7883"')
                                                          for name, text in view.announcements.items()}))


class NeverElsewhere(Member):
    """Tries to start a worker again and again, and gives it to no other node."""

    def _failed_to_start(self, worker: int) -> None:
        pass


class OneAfterAnother(Member):
    """Gives one worker after another when it leaves."""

    def _stop(self, worker: int) -> None:
        if not self._stopping:
            super()._stop(worker)


RULES = {
    "own lease": Options(member=NoLease),
    "death by the own clock": Options(member=WallClock),
    "a new token": Options(member=SameToken),
    "a new token for an own worker": Options(member=OwnTokenAgain),
    "random bits of a token": Options(member=CountedToken),
    "observation begins again after a gap": Options(member=NoGaps),
    "observation begins again with another server": Options(member=OneServer),
    "margin": Options(terms=Terms(margin_s=0.01)),
    "confirmed writes": Options(confirmations=0),
    "a replica in step counts": Options(hold_s=0.0),
    "the greatest offset": Options(by_offset=False),
    "one node, if some have no address": Options(member=AnyNode),
    "a worker that cannot start goes to another node": Options(member=NeverElsewhere),
    "all workers at once when a node leaves": Options(member=OneAfterAnother),
}
