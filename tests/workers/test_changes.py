"""Kill the broker while messages with QoS 1 and 2 are on their way, and start it with another number of workers."""

from __future__ import annotations

import random
import re
import time

import pytest

from tests.workers import test_links_killed as links
from tests.workers.case import Workers, until
from tests.workers.test_links_killed import STORE, Publisher, Subscriber, without_repeats
from tests.workers.test_store import kill

COUNTED = re.compile(r"(\d+) QoS 2 messages were delivered by a part of the workers")


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.part("workers"))])
def test_nothing_is_lost_when_the_broker_is_killed_and_the_number_of_workers_changes(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A QoS 2 message comes twice only if a line of the log has counted it, and then at most once more to each subscriber."""
    monkeypatch.setattr(links, "MESSAGES", 150 * rounds)
    seed = int(time.time())
    dice = random.Random(seed)
    with Workers(2, STORE) as broker:
        publishers = [Publisher(broker.port, f"p{i}x", 1 + i % 2) for i in range(6)]
        subscribers = [Subscriber(broker.port, f"s{number}x") for number in range(4)]
        for one in subscribers:
            one.begin([publisher.name for publisher in publishers])
        for publisher in publishers:
            publisher.thread.start()
        for _ in range(rounds):
            time.sleep(dice.uniform(0.1, 0.5))
            kill(broker)
            lines = [line for line in broker.config.read_text().splitlines() if not line.startswith("cluster_local")]
            broker.config.write_text("\n".join([*lines, f"cluster_local {dice.choice((1, 2, 3))}", ""]))
            broker.process = None
            broker.start()
        for publisher in publishers:
            publisher.thread.join(120)
            assert not publisher.thread.is_alive(), (seed, publisher.done, publisher.stage, broker.log()[-3000:])
        wanted = list(range(links.MESSAGES))
        for one in subscribers:
            until(lambda one=one: all(sorted(set(one.got.get(p.name, []))) == wanted for p in publishers),
                  lambda one=one: repr({p.name: sorted(set(wanted).difference(one.got.get(p.name, [])))[:30] for p in publishers}))
        counted = sum(int(n) for n in COUNTED.findall(broker.log()))
        for one in subscribers:
            one.ends = True
            one.thread.join()
            twice = {p.name: [n for n in wanted if one.got[p.name].count(n) > 1] for p in publishers if p.qos == 2}
            assert sum(map(len, twice.values())) <= counted, (seed, one.name, twice, counted)
            for publisher in publishers:
                assert without_repeats(one.got[publisher.name]) == wanted, (seed, "the order is wrong")
