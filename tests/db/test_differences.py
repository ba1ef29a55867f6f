"""Random histories of a store: a plugin that gets the events has what the store has, also after lost events and lost records.

The fingerprint that comes with an event is that of what the plugin restores after it.

The plugin of the test changes and deletes by the same keys as Mosquitto's persist-sqlite: a delivery by client, stored message and direction; with
a client its subscriptions, its deliveries, and the stored messages that no other client and no retained message uses.
"""

import random
from types import SimpleNamespace

import pytest

from mosq.tools.db import kept as k
from mosq.tools.db import kinds
from mosq.tools.db.differences import Differences, fingerprint_of
from mosq.tools.db.followed import Changed, Followed
from mosq.tools.db.kept import Kept
from mosq.tools.db.mosquitto_format import EXPIRY_NEVER, IN, OUT, QUEUED, WAIT_PUBACK, WAIT_PUBCOMP, WAIT_PUBREC, WAIT_PUBREL

CLIENTS = [b"ann", b"bob", b"eve"]
TOPICS = [b"a", b"b/c", b"d"]
EMPTY = {"client_id": None, "username": None, "topic": None, "data": b"", "properties": b"", "store_id": 0, "cmsg_id": 0, "ends_s": 0,
         "will_due_s": 0, "expiry_s": 0, "will_delay_s": 0, "identifier": 0, "pid": 0, "port": 0, "qos": 0, "retain": 0, "dup": 0, "direction": 0,
         "state": 0, "options": 0}


def part(fields):
    one = SimpleNamespace(**{**EMPTY, **fields})
    one.data_n = len(one.data)
    one.given_data, one.given_properties = lambda: one.data, lambda: one.properties
    return one


class Plugin:
    """Keeps what the events report. It refuses an event that does not fit to what it has."""

    def __init__(self):
        self.clients, self.subs, self.bases, self.queue, self.retained, self.wills = {}, {}, {}, [], {}, {}

    def take(self, event, f):
        client = f.get("client_id")
        if event == k.BASE_ADD:
            assert f["store_id"] not in self.bases
            self.bases[f["store_id"]] = f
        elif event == k.BASE_DELETE:
            assert all(one["store_id"] != f["store_id"] for one in self.queue) and f["store_id"] not in self.retained.values()
            self.bases.pop(f["store_id"], None)
        elif event == k.RETAIN_SET:
            assert self.bases[f["store_id"]]["topic"] == f["topic"]
            self.retained[f["topic"]] = f["store_id"]
        elif event == k.RETAIN_DELETE:
            del self.retained[f["topic"]]
        elif event == k.CLIENT_ADD:
            self.clients[client] = f
        elif event == k.CLIENT_UPDATE:
            self.clients[client] = {**self.clients[client], "ends_s": f["ends_s"], "will_due_s": f["will_due_s"]}
        elif event == k.CLIENT_DELETE:
            del self.clients[client]
            self.subs = {key: one for key, one in self.subs.items() if key[0] != client}
            of_others = {one["store_id"] for one in self.queue if one["client_id"] != client} | set(self.retained.values())
            for one in self.queue:
                if one["client_id"] == client and one["store_id"] not in of_others:
                    self.bases.pop(one["store_id"], None)
            self.queue = [one for one in self.queue if one["client_id"] != client]
        elif event == k.SUB_ADD:
            assert client in self.clients
            self.subs[client, f["topic"]] = f
        elif event == k.SUB_DELETE:
            del self.subs[client, f["topic"]]
        elif event == k.MESSAGE_ADD:
            assert client in self.clients and f["store_id"] in self.bases
            self.queue.append(f)
        elif event in (k.MESSAGE_DELETE, k.MESSAGE_UPDATE):
            same = [one for one in self.queue if (one["client_id"], one["store_id"], one["direction"]) == (client, f["store_id"], f["direction"])]
            assert len(same) == 1
            place = self.queue.index(same[0])
            self.queue[place:place + 1] = [f] if event == k.MESSAGE_UPDATE else []
        elif event == k.WILL_ADD:
            self.wills[client] = f
        else:
            assert event == k.WILL_DELETE
            del self.wills[client]

    def restored(self):
        kept = Kept("plugin")
        for event, parts in ((k.BASE_ADD, self.bases.values()), (k.CLIENT_ADD, self.clients.values()), (k.SUB_ADD, self.subs.values()),
                             (k.MESSAGE_ADD, self.queue), (k.WILL_ADD, self.wills.values())):
            for one in parts:
                assert kept.take(event, part(one)) == 0
        for topic, id in self.retained.items():
            assert kept.take(k.RETAIN_SET, part({"topic": topic, "store_id": id})) == 0
        return kept

    def content(self):
        """Return all of it by content, without numbers of messages."""
        def message(id):
            f = self.bases[id]
            return f["topic"], f.get("data", b""), f.get("ends_s", 0)

        queues = {}
        for one in self.queue:
            state = one["state"]
            queues.setdefault((one["client_id"], one["direction"]), []).append(
                (None if state == WAIT_PUBCOMP else message(one["store_id"]), one["pid"], one["qos"], state))
        for key in queues:
            if key[1] == IN:
                queues[key].sort(key=lambda one: one[1])
        return {
            "clients": {id: (f["username"], f["ends_s"], f["expiry_s"], f["will_due_s"], f["will_delay_s"], f["port"]) for id, f in self.clients.items()},
            "subs": {key: (f["options"], f["identifier"]) for key, f in self.subs.items()},
            "queues": queues, "retained": {topic: message(id) for topic, id in self.retained.items()},
            "wills": {id: (f["topic"], f["data"]) for id, f in self.wills.items()},
            "messages": len(self.bases),
        }


class Broker:
    """Writes records as a broker does: of sessions, messages and their ends, and copies that cleaning makes."""

    def __init__(self, seed):
        self.random, self.log, self.lsn, self.tail_lsn, self.last_sno = random.Random(seed), [], 0, 0, 0
        self.sessions, self.next, self.pid, self.queues, self.payload = {}, {}, {}, {}, 0      # by client id

    def put(self, kind, **f):
        self.log.append((self.lsn, kind, f, 40))
        self.lsn += self.random.choice((12, 40, 400))

    def session(self, client, connected):
        sno, queue = self.sessions[client], self.queues[client]
        self.put(kinds.SESSION, sno=sno, connected=connected, expiry_s=self.random.choice((100, EXPIRY_NEVER)), ends_wall_ms=5_000_000,
                 next=min((p for p in queue), default=self.next[client]) + self.random.choice((0, 1)), id=client, user=self.random.choice((None, b"u")),
                 security=kinds.origin_of_port(1883))

    def step(self):
        getattr(self, self.random.choice(("begin", "end", "toggle", "sub", "publish", "publish", "publish", "ack", "release", "inbox", "retain", "will",
                                          "client_will", "clean")))()

    def any_client(self):
        return self.random.choice(sorted(self.sessions)) if self.sessions else None

    def begin(self):
        client = self.random.choice(CLIENTS)
        if client not in self.sessions:
            self.last_sno = self.random.choice((self.last_sno + 1, *(n for n in range(1, 3) if n not in self.sessions.values())))
            while self.last_sno in self.sessions.values():
                self.last_sno += 1
            self.sessions[client], self.next[client], self.pid[client], self.queues[client] = self.last_sno, 2**32 - 3, 0, {}
            self.session(client, True)

    def end(self):
        client = self.any_client()
        if client and self.random.random() < 0.2:           # another session of the client begins before
            old = self.sessions[client]
            self.last_sno = 1 + max((10, self.last_sno, *self.sessions.values()))
            self.sessions[client], self.next[client], self.pid[client], self.queues[client] = self.last_sno, 5, 0, {}
            self.session(client, True)
            self.put(kinds.END, sno=old)
        elif client:
            self.put(kinds.END, sno=self.sessions.pop(client))
            if self.random.random() < 0.5:
                self.begin()

    def toggle(self):
        client = self.any_client()
        if client:
            self.session(client, self.random.random() < 0.5)

    def sub(self):
        client, filter = self.any_client(), self.random.choice(TOPICS)
        if client:
            if self.random.random() < 0.6:
                self.put(kinds.SUB, sno=self.sessions[client], options=self.random.randrange(3), sub_id=self.random.randrange(2), filter=filter)
            else:
                self.put(kinds.UNSUB, sno=self.sessions[client], filter=filter)

    def message(self, **f):
        self.payload += 1
        return {"topic": self.random.choice(TOPICS), "payload": b"%d" % self.payload, "props": b"", "qos": 2, "retain": 0, "retained_set": 0,
                "expires_wall_ms": self.random.choice((0, 7_000_500)), **f}

    def entries(self):
        made = []
        for client in self.sessions:
            for _ in range(self.random.choice((0, 1, 1, 2))):
                position = self.next[client]
                self.next[client] = (position + 1) % 2**32
                self.pid[client] += 1
                qos = self.random.choice((0, 1, 2, 0x82))
                made.append((self.sessions[client], position, self.pid[client], qos, 0))
                self.queues[client][position] = self.pid[client], qos
        return made

    def publish(self):
        self.put(kinds.MSG, **self.message(entries=self.entries()))

    def retain(self):
        if self.random.random() < 0.3:
            self.put(kinds.RETAINED_GONE, topic=self.random.choice(TOPICS))
        else:
            self.put(kinds.MSG, **self.message(entries=self.entries(), retained_set=1, retain=1))

    def ack(self):
        client = self.any_client()
        if client and self.queues[client]:
            position = self.random.choice(sorted(self.queues[client]))
            del self.queues[client][position]
            self.put(kinds.ACKS, acks=[(self.sessions[client], position)])

    def release(self):
        client = self.any_client()
        if client and self.queues[client]:
            position = self.random.choice(sorted(self.queues[client]))
            pid, qos = self.queues[client][position]
            if qos & 3 == 2:
                self.put(kinds.RELEASED, acks=[(self.sessions[client], position, pid)])

    def inbox(self):
        client, pid = self.any_client(), self.random.randrange(1, 3)
        if client:
            if self.random.random() < 0.6:
                self.put(kinds.INBOX, **self.message(sno=self.sessions[client], pid=pid, refused=self.random.random() < 0.2))
            else:
                self.put(kinds.INBOX_DONE, sno=self.sessions[client], pid=pid)

    def will(self):
        client = self.any_client()
        if client:
            if self.random.random() < 0.6:
                self.put(kinds.WILL, **self.message(sno=self.sessions[client], due_wall_ms=self.random.choice((0, 9_000_000)), delay_s=3, expires_wall_ms=0))
            else:
                self.put(kinds.WILL_GONE, sno=self.sessions[client])

    def client_will(self):
        client = self.random.choice(CLIENTS)
        if client not in self.sessions and self.random.random() < 0.6:
            self.put(kinds.CLIENT_WILL, **self.message(id=client, user=None, security=0, expires_wall_ms=0))
        else:
            self.put(kinds.CLIENT_WILL_GONE, id=client)

    def state(self):
        state = Followed()
        for record in self.log:
            state.apply(*record)
        return state

    def clean(self):
        """Write the live records of the oldest part again, and drop it."""
        state, n = self.state(), self.random.randrange(len(self.log) + 1)
        old, self.log = self.log[:n], self.log[n:]
        self.tail_lsn = self.log[0][0] if self.log else self.lsn
        for lsn, kind, f, _ in old:
            s = state.sessions.get(f.get("sno"))
            if kind == kinds.MSG:
                live = [entry for entry in f["entries"] if state.delivers(lsn, entry)]
                retained = state.is_retained(lsn, f["topic"])
                if live or retained:
                    self.put(kind, **{**f, "entries": live, "retained_set": int(retained)})
            elif (kind in (kinds.INBOX, kinds.WILL, kinds.CLIENT_WILL) and lsn in state.live) or (kind == kinds.SESSION and s and s.lsn == lsn) or (
                    kind == kinds.SUB and s and s.subscriptions.get(f["filter"], (0, 0, -1))[2] == lsn):
                self.put(kind, **f)
            elif kind == kinds.RELEASED:
                live = [one for one in f["acks"] if one[0] in state.sessions and state.sessions[one[0]].released.get(one[1], (0, -1))[1] == lsn]
                if live:
                    self.put(kind, acks=live)


def wanted(broker):
    """Return the content that the plugin should have, computed from the whole log."""
    state, bodies = broker.state(), {record[0]: record[2] for record in broker.log}

    def message(lsn):
        f = bodies[lsn]
        return f["topic"], f["payload"], f["expires_wall_ms"] // 1000

    out = {"clients": {}, "subs": {}, "queues": {}, "retained": {t: message(place[0]) for t, place in state.retained.items()},
           "wills": {id: (bodies[lsn]["topic"], bodies[lsn]["payload"]) for id, lsn in state.client_wills.items()}}
    for s in state.sessions.values():
        due_s, delay_s = (s.will[1] // 1000, s.will[2]) if s.will else (0, 0)
        ends_s = 0 if s.connected or s.expiry_s == EXPIRY_NEVER else s.ends_wall_ms // 1000
        out["clients"][s.id] = (s.user, ends_s, s.expiry_s, due_s, delay_s, 1883)
        if s.will:
            out["wills"][s.id] = bodies[s.will[0]]["topic"], bodies[s.will[0]]["payload"]
        for filter, sub in s.subscriptions.items():
            out["subs"][s.id, filter] = sub[:2]
        queue = []
        for position in state.in_order(s, {p for p, _ in s.queue.places()} | s.released.keys()):
            if position in s.released:
                queue.append((None, s.released[position][0], 2, WAIT_PUBCOMP))
            else:
                pid, qos, _, _ = state.entries[s.sno][position]
                sent = qos & 3 and state.was_sent(s, position)
                queue.append((message(s.queue.get(position) - 1), pid, qos & 3, (WAIT_PUBACK if qos & 3 == 1 else WAIT_PUBREC) if sent else QUEUED))
        if queue:
            out["queues"][s.id, OUT] = queue
        inbox = [(message(lsn), pid, 2, WAIT_PUBREL) for pid, (lsn, refused) in sorted(s.inbox.items()) if not refused]
        if inbox:
            out["queues"][s.id, IN] = inbox
    return out


class Feeding:
    """Does what mosq/server/feeding.py does with the files of a store."""

    def __init__(self, broker, plugin, lose=0):
        self.broker, self.plugin, self.differences, self.at = broker, plugin, None, 0
        self.left = lose        # events after which all others are lost; 0: none is

    def give(self, event, fields, fingerprint):
        if self.left >= 0:
            self.plugin.take(event, dict(fields))
            assert fingerprint == fingerprint_of(self.plugin.restored())
        if self.left > 0:
            self.left -= 1
            if not self.left:
                self.left = -1

    def begin(self):
        state = self.broker.state()
        state.changed = state.all_changed()
        if self.differences is None:
            self.differences = Differences(state, self.give, {})
            self.differences.adopt(self.plugin.restored())
        else:
            self.differences.rejoin(state)
        end_lsn, tail_lsn = self.broker.lsn, self.broker.tail_lsn
        for _ in range(self.broker.random.randrange(3)):        # the broker goes on between the two walks
            self.broker.step()
        for lsn, kind, f, _ in self.broker.log:
            if kind in (kinds.MSG, kinds.INBOX, kinds.WILL, kinds.CLIENT_WILL) and lsn < end_lsn:
                self.differences.needs(lsn, kind, f)
        if self.broker.tail_lsn > tail_lsn:
            self.begin()
            return
        self.differences.changes(state.changed)
        self.at = end_lsn
        self.look()

    def look(self):
        if self.differences is None or self.broker.tail_lsn > self.at:
            self.begin()
            return
        differences = self.differences
        for record in self.broker.log:
            if record[0] >= self.at:
                differences.state.apply(*record)
                differences.bodies[record[0]] = record[2]
                if self.broker.random.random() < 0.2:       # the end of a slice
                    differences.changes(differences.state.changed)
        differences.changes(differences.state.changed)
        self.at = self.broker.lsn


def compare(broker, plugin):
    got, expected = plugin.content(), wanted(broker)
    messages = got.pop("messages")
    assert got == expected
    used = {one["store_id"] for one in plugin.queue} | set(plugin.retained.values())
    assert messages == len(used)


@pytest.mark.parametrize("seed", range(150))
def test_a_plugin_has_what_the_store_has(seed):
    broker, plugin = Broker(seed), Plugin()
    feeding = Feeding(broker, plugin)
    for _ in range(60):
        for _ in range(broker.random.randrange(12)):
            broker.step()
        feeding.look()
        compare(broker, plugin)
        if broker.random.random() < 0.1:            # the broker starts again
            feeding = Feeding(broker, plugin)


@pytest.mark.parametrize("seed", range(60))
def test_lost_events_are_found_at_the_next_start(seed):
    broker, plugin = Broker(seed), Plugin()
    for _ in range(8):
        feeding = Feeding(broker, plugin, lose=broker.random.randrange(1, 40))
        for _ in range(6):
            for _ in range(broker.random.randrange(12)):
                broker.step()
            feeding.look()
        Feeding(broker, plugin).look()
        compare(broker, plugin)


def test_a_start_without_a_change_reports_nothing():
    broker, plugin, events = Broker(5), Plugin(), []
    for _ in range(200):
        broker.step()
    Feeding(broker, plugin).look()
    broker.step = lambda: None
    plugin.take = lambda event, fields: events.append((event, fields))
    Feeding(broker, plugin).look()
    assert not events


def test_the_state_of_a_session_without_a_record_waits_for_it():
    state, events = Followed(), []
    differences = Differences(state, lambda event, fields, fingerprint: events.append(event), {})
    message = Broker(1).message(entries=[(7, 0, 1, 1, 0)])
    state.apply(0, kinds.MSG, message, 40)
    differences.bodies[0] = message
    state.apply(40, kinds.SUB, {"sno": 7, "options": 1, "sub_id": 0, "filter": b"a"}, 40)
    differences.changes(state.changed)
    assert not events
    state.apply(80, kinds.SESSION, {"sno": 7, "connected": False, "expiry_s": 9, "ends_wall_ms": 0, "next": 0, "id": b"c", "user": None}, 40)
    differences.changes(state.changed)
    assert events == [k.CLIENT_ADD, k.SUB_ADD, k.BASE_ADD, k.MESSAGE_ADD]
    assert isinstance(state.changed, Changed) and not state.changed.positions
