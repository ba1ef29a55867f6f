"""A cluster in virtual time: nodes with the real state machine (mosq/cluster/member.py), a Redis with replicas, faults. One seed is one schedule.

Redis is a primary with two asynchronous replicas, of which one must confirm, or a server alone, which loses the writes of its last second when
it is killed. A request may be lost, come late, or lose its answer. A worker opens its store with its token and then writes now and then; such a
write may arrive long after its process has ended. It is acknowledged when the replicas that are in step have confirmed it, as in cext/redis.
A process that lives sends its writes again to a server that lacks them.

Sentinel promotes the replica with the greatest offset. A primary that hung may go on when one replica is promoted already and the other one
still follows it. A replica that lags for seconds, or is new, is a second fault at that moment: no schedule has both.

Invariants:
- no token of a worker is used for two starts;
- no two nodes that are not stopped run one worker;
- the store takes no write of a process other than the one that opened it last;
- a store that is opened has each acknowledged write;
- no node is taken for dead that had no fault of its own for a while, whatever happened to Redis;
- no worker starts while one runs at a node that cannot reach it, or that it cannot reach;
- a node that leaves has left soon, if there are no other faults;
- a while after the last fault each worker runs, also one that cannot start on some nodes, and a while later each node has its part, and nothing moves.
"""

from __future__ import annotations

import heapq
from collections import deque
from random import Random

from mosq.cluster.entries import Announcement, entry_of
from mosq.cluster.member import Member
from mosq.cluster.requests import Answer, Change, Request
from mosq.cluster.terms import HOLD_S, Terms
from tests.cluster.model import State, apply

FAULTS_S = 25.0             # faults begin in this time
FAULT_MAX_S = 11.0          # the longest fault
DELAY_MAX_S = 7.0           # of a request that is stuck in the network
LAG_MAX_S = 6.0             # of a replica that lags
FOLLOWS_MAX_S = 1.5         # from the promotion of a replica until Sentinel gives it to the other one as its primary
CONFIRM_S = 0.1             # pause between two looks for confirmations
LOST_S = 1.0                # writes that a server alone loses
PROMOTE_MAX_S = 3.0         # from the loss of a primary to the promotion of a replica
BUSY_S = 1.6                # the longest delay of a busy node
# A node without a fault for so long is not taken for dead: it has beaten since, each observer has read that, and claims that were decided before are sent.
WELL_S = 14.0
# After the last fault: a node waits for its own earlier run to be dead, observers wait for death after another server answers.
RUN_WITHIN_S = 22.0
BALANCED_WITHIN_S = 70.0
LEFT_WITHIN_S = 5.0         # a worker stops within 1.5 s
STILL_S = 10.0


class Violation(AssertionError):
    """A schedule broke an invariant."""


class Options:
    """The parts in which a schedule may differ from the product, to test the simulator."""

    def __init__(self, *, member: type[Member] = Member, terms: Terms | None = None, confirmations: int | None = None,
                 hold_s: float = HOLD_S, by_offset: bool = True) -> None:
        self.member, self.terms, self.confirmations = member, terms or Terms(), confirmations
        self.hold_s, self.by_offset = hold_s, by_offset


class Server:
    """A Redis server. Its replicas have its states later."""

    def __init__(self, world: World, place: int) -> None:
        self.world, self.place = world, place
        self.up, self.source = True, f"{place}.0"
        self.state = State(0)
        self.replicas: list[Replica] = []
        self.history: deque[tuple[float, State]] = deque()     # states of the last second, of a server alone

    def take(self, state: State) -> None:
        """Have a new state, and send it to the replicas."""
        now = self.world.now
        if not self.replicas:
            self.history.append((now, self.state))
            while self.history[0][0] < now - LOST_S:
                self.history.popleft()
        self.state = state
        for replica in self.replicas:
            replica.send(now, state)

    def confirmed_s(self, count: int) -> float:
        """Return when so many replicas have the present state; inf: never."""
        if count == 0:
            return self.world.now
        times = sorted(max(self.world.now, replica.last_s) for replica in self.replicas)
        return times[count - 1] if len(times) >= count else float("inf")

    def is_new(self) -> None:
        """Be another server for observers: it was started again, or promoted."""
        self.world.sources += 1
        self.source = f"{self.place}.{self.world.sources}"


class Replica:
    """A server that follows another one."""

    def __init__(self, server: Server) -> None:
        self.server, self.last_s = server, 0.0
        self.coming: deque[tuple[float, State]] = deque()

    def send(self, now: float, state: State) -> None:
        random = self.server.world.random
        lag = random.random() * (0.004 if random.random() < 0.95 else 0.4)
        if self.server is self.server.world.lagging:
            lag += random.random() * LAG_MAX_S
        self.last_s = max(self.last_s, now + lag)
        self.coming.append((self.last_s, state))
        self.advance(now)

    def advance(self, now: float) -> None:
        while self.coming and self.coming[0][0] <= now:
            self.server.state = self.coming.popleft()[1]


class Step:
    """The replicas that must confirm the writes of a process: `RemoteFiles` in cext/redis. `number`: 0 = not known."""

    def __init__(self, number: int) -> None:
        self.place, self.number, self.short_s = -1, number, 0.0


class Node:
    """A machine with an agent and workers. It does with a Member what Agent does, in virtual time."""

    def __init__(self, world: World, place: int) -> None:
        self.world, self.name = world, f"n{place}"
        random = world.random
        self.rate, self.offset_s, self.wall_jump_s = 1 + random.uniform(-0.01, 0.01), random.random() * 1000, 0.0
        self.up = self.paused = self.cut = self.busy = self.leaving = False
        self.well_s = 0.0                   # since when it has had no fault of its own
        self.faults = 0                     # that it has now
        self.runs = 0
        self.capacity = random.choice((1, 1, 1, 2))
        self.address = f"10.0.0.{place + 1} 7883" if random.random() < 0.97 else ""
        self.fails: set[int] = set()        # workers that cannot start here
        self.running: dict[int, tuple[int, int]] = {}      # worker -> token, number of the start
        self.inbox: list[tuple] = []        # events that came while it was stopped
        self.following = ("", 0, float("-inf"))     # the server that answers, its replicas, and when they were last fewer than before
        self.wakes = 0
        self.member: Member

    def clock(self) -> float:
        return self.world.now * self.rate + self.offset_s

    def wall(self) -> float:
        return self.world.now + self.wall_jump_s

    def boot(self) -> None:
        self.runs += 1
        self.up, self.leaving = True, False
        self.asked: tuple[int, Request, float] | None = None
        self.requests = 0
        world = self.world
        self.member = world.options.member(self.name, f"{self.name}r{self.runs}", world.count, world.options.terms, self,
                                           announcement=Announcement(self.capacity, address=self.address), random_bits=world.random.getrandbits)
        self.member.node = self             # for variants that use the wall clock
        self.pump()

    def die(self) -> None:
        self.up = self.paused = False
        self.running.clear()
        self.inbox.clear()

    # ---- events

    def event(self, run: int, lagged: bool, action, *arguments) -> None:
        """Let the agent take an event: at once, when it continues, or later if it is busy."""
        if not self.up or run != self.runs:
            return
        if self.paused:
            self.inbox.append((run, True, action, *arguments))
        elif self.busy and not lagged:
            self.world.after(self.world.random.random() * BUSY_S, self.event, run, True, action, *arguments)
        else:
            self.member.check(self.clock())
            action(*arguments)
            self.pump()

    def resume(self) -> None:
        self.paused = False
        inbox, self.inbox = self.inbox, []
        self.pump()
        for event in inbox:
            self.event(*event)

    def wake(self, number: int) -> None:
        if number != self.wakes:
            return                          # a later one is planned

    def pump(self) -> None:
        """Do what is due, and plan the next wake."""
        if not self.up or self.paused:
            return
        member, now, timeout_s = self.member, self.clock(), self.world.options.terms.request_s
        member.check(now)
        if self.asked is not None and now - self.asked[2] >= timeout_s:
            request, self.asked = self.asked[1], None
            member.failed(now, request, "no answer")
        if self.asked is None:
            request_now = member.turn(now)
            if request_now is not None:
                self.requests += 1
                self.asked = self.requests, request_now, now
                self.world.send(self, self.requests, request_now)
        if member.out:
            self.world.gone(self)
            return
        due_s = self.asked[2] + timeout_s if self.asked is not None else member.wake_s()
        if self.running:
            due_s = min(due_s, member.lease_until_s)
        self.wakes += 1
        self.world.after(max(0.0, due_s - now) / self.rate + 0.0005, self.event_of_wake, self.runs, self.wakes)

    def event_of_wake(self, run: int, number: int) -> None:
        if number == self.wakes and run == self.runs:
            self.event(run, False, self.wake, number)

    def answered(self, number: int, answer: Answer | str) -> None:
        if self.asked is None or self.asked[0] != number:
            return
        _, request, sent_s = self.asked
        self.asked = None
        if isinstance(answer, str):
            self.member.failed(self.clock(), request, answer)
        else:
            self.member.answered(self.clock(), sent_s, request, answer)

    # ---- the workers of this machine, as Member calls them

    def start(self, worker: int, token: int, until_s: float) -> None:
        self.world.started(self, worker, token)

    def stop(self, worker: int) -> None:
        start = self.running.get(worker)
        if start is not None:               # otherwise it has ended, and the agent, which is busy, takes that event later
            self.world.after(self.world.random.random() * 1.5, self.stopped, self.runs, worker, start)

    def stopped(self, run: int, worker: int, start: tuple[int, int]) -> None:
        if run == self.runs and self.paused:
            self.inbox.append((run, True, self.stopped, run, worker, start))
        elif run == self.runs and self.running.get(worker) == start:
            del self.running[worker]
            self.event(run, False, self.member.ended, worker, start[0])

    def kill(self, workers: list[int]) -> None:
        for worker in workers:
            self.running.pop(worker, None)

    def lease(self, until_s: float) -> None:
        pass


class World:
    """One schedule."""

    def __init__(self, seed: int, options: Options, trace: list[str] | None = None) -> None:
        self.random, self.options, self.trace = Random(seed), options, trace
        random = self.random
        self.now, self.sequence, self.events = 0.0, 0, []
        self.count = random.randint(2, 8)
        self.sources = self.starts = 0
        self.tokens: dict[tuple[int, int], str] = {}
        self.moved_s = 0.0                  # the last start
        alone = random.random() < 0.4
        self.servers = [Server(self, place) for place in range(1 if alone else 3)]
        self.confirmations = options.confirmations if options.confirmations is not None else len(self.servers) // 2
        self.primary: Server | None = self.servers[0]
        self.old: Server | None = None      # a primary that is cut off, with the nodes `beyond`
        self.beyond: set[str] = set()
        self.hangs = random.random() < 0.5  # otherwise replicas lag
        self.lagging: Server | None = None
        self.failed_over = False
        self.writes = 0
        self.steps: dict[tuple[int, int], Step] = {}
        self.acknowledged: dict[int, int] = {}      # worker -> the last write
        self.slow = False                   # Redis answers late
        self.faulty = True                  # faults begin
        self.healed = False                 # all faults are over
        self.servers[0].replicas = [Replica(server) for server in self.servers[1:]]
        for server in self.servers:
            server.state = State(0, "id")
        self.nodes = [Node(self, place) for place in range(random.randint(3, 5))]
        if random.random() < 0.2 and all(node.address for node in self.nodes):     # every worker can start on all nodes but one
            random.choice(self.nodes).fails = {worker for worker in range(self.count) if random.random() < 0.4}
        for node in self.nodes:
            self.after(random.random() * 2, node.boot)

    def log(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:9.3f} {text}")

    def after(self, pause_s: float, action, *arguments) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (self.now + pause_s, self.sequence, action, arguments))

    def run_until(self, end_s: float) -> None:
        events = self.events
        while events and events[0][0] <= end_s:
            self.now, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        self.now = end_s

    # ---- requests

    def server_of(self, node: Node) -> Server | None:
        server = self.old if self.old is not None and node.name in self.beyond else self.primary
        return server if server is not None and server.up and not node.cut else None

    def delay(self) -> float:
        random = self.random
        if self.slow:
            return random.uniform(0.02, 0.7)
        if not self.healed and random.random() < 0.01:
            return random.uniform(0.3, DELAY_MAX_S)
        return 0.0005 + random.random() * 0.003

    def send(self, node: Node, number: int, request: Request) -> None:
        if isinstance(request, Change):
            self.check_claim(node, request)
        server = self.server_of(node)
        if server is None:
            self.after(self.random.choice((0.001, 5.0)), node.event, node.runs, False, node.answered, number, "cannot connect")
            return
        self.after(self.delay(), self.arrive, node, node.runs, node.member.run, number, server, server.source, request)

    def arrive(self, node: Node, run: int, run_name: str, number: int, server: Server, source: str, request: Request) -> None:
        if not server.up or server.source != source or server is not (self.primary if server is not self.old else self.old):
            return                          # its connection has ended
        if node.cut and self.random.random() < 0.7:
            return
        if isinstance(request, Change) and request.source not in ("", source):
            self.after(self.delay(), self.reply, node, run, number, server, source, "another server")
            return
        state, answer = apply(server.state, source, "id", node.name, run_name, request)
        if state is not server.state:
            server.take(state)
            if isinstance(request, Change) and self.faulty and self.random.random() < 0.2:
                fault = self.restart if len(self.servers) == 1 else self.split
                self.after(self.random.random() * 0.3, fault, node, self.random.uniform(0.1, FAULT_MAX_S))
        if self.trace is not None and (isinstance(request, Change) or answer.status != "done"):
            self.log(f"{node.name} {request} -> {answer.status}")
        confirmed_s, wait_s = server.confirmed_s(self.confirmations), self.options.terms.request_s / 2
        outcome: Answer | str = answer
        if confirmed_s - self.now > wait_s:
            confirmed_s, outcome = self.now + wait_s, "not confirmed"
        if not node.cut:
            self.after(confirmed_s - self.now + self.delay(), self.reply, node, run, number, server, source, outcome)

    def reply(self, node: Node, run: int, number: int, server: Server, source: str, outcome: Answer | str) -> None:
        if server.up and server.source == source and self.server_of(node) is server:
            last, replicas, fewer_s = node.following
            fewer = last == source and len(server.replicas) < replicas
            node.following = source, len(server.replicas), self.now if fewer else fewer_s if last == source else float("-inf")
            node.event(run, False, node.answered, number, outcome)

    def gone(self, node: Node) -> None:
        """Let a node end that has left or was replaced; an operator starts it again."""
        self.log(f"{node.name} is out: {node.member.error}")
        node.die()
        if not self.healed:
            node.well_s = self.now
        self.after(self.random.uniform(0.5, 3), self.boot, node, node.runs)

    def boot(self, node: Node, run: int) -> None:
        if not node.up and node.runs == run:
            self.log(f"{node.name} starts")
            node.well_s = self.now
            node.boot()

    # ---- workers and their stores

    def check_claim(self, node: Node, request: Change) -> None:
        owner = entry_of(request.expected)
        if not owner.name or owner.name == node.name or not entry_of(request.entry).name:
            return
        other = next(one for one in self.nodes if one.name == owner.name)
        if other.leaving and self.primary is not None and other.name not in self.primary.state.beats:
            return                          # it has left, and the answer to that is on its way
        if other.up and not other.faults and other.member.run == owner.run and self.now - other.well_s > WELL_S:
            raise Violation(f"{node.name} takes {owner.name} for dead, which is well since {other.well_s:.3f}")

    def started(self, node: Node, worker: int, token: int) -> None:
        self.starts += 1
        self.moved_s = self.now
        start = token, self.starts
        self.log(f"{node.name} starts worker {worker} with token {token}")
        if (worker, token) in self.tokens:
            raise Violation(f"{node.name} starts worker {worker} with a token that {self.tokens[worker, token]} has used")
        self.tokens[worker, token] = node.name
        for other in self.nodes:
            if other is not node and worker in other.running and not other.paused:
                raise Violation(f"{node.name} starts worker {worker}, which runs at {other.name}")
        for other in self.nodes:
            if other.up and other.running and not (other is node or other.paused or other.leaving or (node.address and other.address)):
                raise Violation(f"{node.name} starts worker {worker} while {other.name} has some, and one of the two has no address")
        node.running[worker] = start
        _, replicas, fewer_s = node.following
        self.steps[start] = Step(len(self.servers) - 1 if self.now - fewer_s < self.options.hold_s else replicas)
        if worker in node.fails:
            self.after(self.random.uniform(0.05, 0.5), self.failed, node, node.runs, worker, start)
            return
        node.member.serves(worker, token)
        self.after(self.random.uniform(0.02, 0.3), self.use_store, node, node.runs, worker, start, True)

    def failed(self, node: Node, run: int, worker: int, start: tuple[int, int]) -> None:
        """Let a process end that cannot serve clients on this node."""
        if node.runs == run and node.running.get(worker) == start:
            del node.running[worker]
            node.event(run, False, node.member.ended, worker, start[0], True)

    def use_store(self, node: Node, run: int, worker: int, start: tuple[int, int], opening: bool) -> None:
        """Let a worker open its store, or write to it."""
        if node.runs != run or node.running.get(worker) != start:
            return
        if node.paused:
            node.inbox.append((run, True, self.use_store, node, run, worker, start, opening))
            return
        server = self.server_of(node)
        if server is None:
            self.after(0.3, self.use_store, node, run, worker, start, opening)
            return
        late = not self.healed and not opening and self.random.random() < 0.2
        delay_s = self.random.random() * DELAY_MAX_S if late else self.delay()
        self.after(delay_s, self.store, node, run, worker, start, opening, server, server.source)
        self.after(self.random.expovariate(1 / 4), self.use_store, node, run, worker, start, False)

    def store(self, node: Node, run: int, worker: int, start: tuple[int, int], opening: bool, server: Server, source: str) -> None:
        """Carry out an operation of a store."""
        if not server.up or server.source != source:
            return
        head = server.state.heads.get(worker, (0, 0))
        if opening and start[0] > head[0] and server.state.id:      # an empty Redis has no store
            if server is self.primary and server.state.written.get(worker, 0) < self.acknowledged.get(worker, 0):
                raise Violation(f"{node.name} opens the store of worker {worker}, which lacks an acknowledged write")
            server.take(server.state._replace(number=server.state.number + 1, heads={**server.state.heads, worker: start}))
        elif start[0] == head[0]:
            if start[1] != head[1]:
                raise Violation(f"the store of worker {worker} takes a write of start {start[1]} by {node.name}; start {head[1]} has opened it")
            self.writes += 1
            server.take(server.state._replace(number=server.state.number + 1, written={**server.state.written, worker: self.writes}))
            if len(self.servers) > 1:
                self.after(self.delay(), self.confirm, node, worker, start, server, source, self.writes)
        elif node.runs == run and node.running.get(worker) == start:
            # refused: another start has opened it, or the server has lost this one
            del node.running[worker]
            node.event(run, False, node.member.ended, worker, start[0])

    def confirm(self, node: Node, worker: int, start: tuple[int, int], server: Server, source: str, write: int) -> None:
        """Acknowledge a write if enough replicas have it; else look again later, while the connection lives."""
        if not server.up or server.source != source or self.server_of(node) is not server or node.running.get(worker) != start:
            return
        for replica in server.replicas:
            replica.advance(self.now)
        n = sum(replica.server.state.written.get(worker, 0) >= write for replica in server.replicas)
        step, least = self.steps[start], self.confirmations
        if step.place != server.place:
            step.number, step.place, step.short_s = max(least, step.number if step.place < 0 else 0), server.place, 0.0
        if least <= n < step.number:
            step.short_s = step.short_s or self.now
            if self.now - step.short_s >= self.options.hold_s:
                step.number = n
        if n >= step.number:
            step.number, step.short_s = n, 0.0
            self.acknowledged[worker] = max(write, self.acknowledged.get(worker, 0))
        else:
            self.after(CONFIRM_S, self.confirm, node, worker, start, server, source, write)

    # ---- faults

    def fault(self) -> None:
        """Begin a random fault, and plan its end."""
        random = self.random
        node = random.choice(self.nodes)
        kind = random.choice(self.kinds())
        long_s = random.choice((random.uniform(0.1, 3), random.uniform(3, FAULT_MAX_S)))
        self.log(f"fault: {kind} {node.name} {long_s:.3f} s")
        getattr(self, kind)(node, long_s)

    def kinds(self) -> tuple[str, ...]:
        common = ("kill", "pause", "cut_off", "leave", "make_busy", "jump", "slow_redis", "redis_away", "empty")
        return common + (("restart",) * 3 if len(self.servers) == 1 else ("failover", "split", "hang" if self.hangs else "lag"))

    def ill(self, node: Node, long_s: float, end, *arguments) -> None:
        node.faults += 1
        self.after(long_s, self.better, node, end, *arguments)

    def better(self, node: Node, end, *arguments) -> None:
        node.faults -= 1
        node.well_s = self.now
        end(*arguments)

    def kill(self, node: Node, long_s: float) -> None:
        if node.up:
            node.die()
            self.after(long_s, self.boot, node, node.runs)

    def pause(self, node: Node, long_s: float) -> None:
        if node.up and not node.paused:
            node.paused = True
            self.ill(node, long_s, self.unpause, node, node.runs)

    def unpause(self, node: Node, run: int) -> None:
        if node.up and node.runs == run and node.paused:
            self.log(f"{node.name} continues")
            node.resume()

    def cut_off(self, node: Node, long_s: float) -> None:
        if not node.cut:
            node.cut = True
            self.ill(node, long_s, setattr, node, "cut", False)
            if self.random.random() < 0.4:
                self.make_busy(node, long_s)

    def make_busy(self, node: Node, long_s: float) -> None:
        if not node.busy:
            node.busy = True
            self.ill(node, long_s, setattr, node, "busy", False)

    def leave(self, node: Node, long_s: float) -> None:
        if node.up and not node.paused and not node.leaving:
            node.leaving = True
            node.member.leave()
            node.pump()

    def jump(self, node: Node, long_s: float) -> None:
        node.wall_jump_s += self.random.uniform(-100, 100)

    def slow_redis(self, node: Node, long_s: float) -> None:
        self.slow = True
        for one in self.nodes:
            self.ill(one, long_s, setattr, self, "slow", False)

    def redis_away(self, node: Node, long_s: float) -> None:
        """Let no node reach Redis; the server keeps all."""
        primary = self.primary
        if primary is not None and primary.up and self.old is None:
            primary.up = False
            self.after(long_s, setattr, primary, "up", True)

    def restart(self, node: Node, long_s: float) -> None:
        """Kill the server, which is alone; it comes back without the writes of up to a second."""
        server = self.servers[0]
        if server.up:
            lost_s = self.now - self.random.random() * LOST_S
            server.state = next((state for at_s, state in server.history if at_s >= lost_s), server.state)
            server.history.clear()
            server.is_new()
            self.redis_away(node, long_s if self.random.random() < 0.5 else 0.2)

    def empty(self, node: Node, long_s: float) -> None:
        """Start Redis empty; an operator restores its data."""
        server = self.primary
        if server is None or not server.up or self.old is not None or self.random.random() < 0.5 or not server.state.id:
            return
        kept = server.state
        self.become(server, State(kept.number))
        self.after(long_s, self.restore, server, kept)

    def restore(self, server: Server, state: State) -> None:
        if not server.state.id:
            self.become(server, state)

    def become(self, server: Server, state: State) -> None:
        server.is_new()
        server.history.clear()
        server.state = state
        server.replicas = [Replica(one.server) for one in server.replicas]
        for replica in server.replicas:
            replica.server.state = state

    def failover(self, node: Node, long_s: float) -> None:
        """Kill the primary; a replica is promoted later."""
        self.lose_primary(long_s, set())

    def split(self, node: Node, long_s: float) -> None:
        """Cut the primary off, together with some nodes; they notice nothing but that no replica confirms."""
        self.lose_primary(long_s, {one.name for one in self.nodes if self.random.random() < 0.4})

    def lag(self, node: Node, long_s: float) -> None:
        """Let a replica lag."""
        if self.primary is not None and self.primary.replicas and self.lagging is None:
            self.lagging = self.random.choice(self.primary.replicas).server
            self.after(long_s, setattr, self, "lagging", None)

    def hang(self, node: Node, long_s: float) -> None:
        """Let the primary hang, and go on when one of its replicas is promoted. All nodes still use it, until the other one follows, too."""
        old = self.primary
        if self.failed_over or old is None or not self.can_fail_over():
            return
        promote_s = self.random.uniform(0.3, PROMOTE_MAX_S)
        self.failed_over = True
        self.primary, self.old, self.beyond = None, old, {one.name for one in self.nodes}
        old.up = False
        self.after(promote_s, self.go_on, old, long_s)

    def go_on(self, old: Server, long_s: float) -> None:
        first, second = self.chosen(old.replicas)
        old.replicas = [replica for replica in old.replicas if replica.server is second]
        old.up = True
        self.log(f"server {first.place} is promoted, and server {second.place} follows server {old.place}, which goes on")
        self.after(self.random.uniform(0.05, FOLLOWS_MAX_S), self.take_over, old, first, second, long_s)

    def take_over(self, old: Server, first: Server, second: Server, long_s: float) -> None:
        old.up, old.replicas, self.beyond = False, [], set()
        self.follow(first, second)
        self.after(long_s, self.rejoin, old)

    def can_fail_over(self) -> bool:
        old = self.primary
        return old is not None and old.up and self.old is None and len(old.replicas) > 1 and bool(old.state.id)

    def lose_primary(self, long_s: float, beyond: set[str]) -> None:
        old = self.primary
        if old is None or not self.can_fail_over():
            return
        self.failed_over = True
        promote_s = self.random.uniform(0.3, PROMOTE_MAX_S)
        self.primary, self.old, self.beyond = None, old, beyond
        followers, old.replicas = old.replicas, []
        old.up = bool(beyond)
        for one in self.nodes:
            if one.name in beyond:
                self.ill(one, promote_s + long_s, self.log, f"{one.name} is back from the other side")
        self.after(promote_s, self.promote, followers)
        self.after(promote_s + long_s, self.rejoin, old)

    def promote(self, followers: list[Replica]) -> None:
        first, second = self.chosen(followers)
        self.log(f"server {first.place} is promoted")
        self.follow(first, second)

    def chosen(self, followers: list[Replica]) -> list[Server]:
        """Return the replicas, and in front the one that Sentinel chooses: that with the greatest offset."""
        for follower in followers:
            follower.advance(self.now)
        servers = [follower.server for follower in followers]
        if self.options.by_offset:
            return sorted(servers, key=lambda server: -server.state.number)
        self.random.shuffle(servers)
        return servers

    def follow(self, first: Server, second: Server) -> None:
        second.state = first.state
        first.replicas = [Replica(second)]
        first.is_new()
        self.primary = first

    def rejoin(self, old: Server) -> None:
        assert self.primary is not None
        self.log(f"server {old.place} is back, as a replica")
        self.old, self.beyond = None, set()
        old.up, old.state = True, self.primary.state
        old.is_new()
        replica = Replica(old)
        replica.last_s = self.now
        self.primary.replicas.append(replica)

    # ---- a whole schedule

    def play(self) -> None:
        """Raise Violation if an invariant breaks."""
        random = self.random
        at_s = random.uniform(3, 15)
        while at_s < FAULTS_S:
            self.after(at_s, self.fault)
            at_s += random.expovariate(1 / 3.0)
        end_s = FAULTS_S + 0.3 + FAULT_MAX_S + PROMOTE_MAX_S + FOLLOWS_MAX_S
        self.run_until(FAULTS_S)
        self.faulty = False
        self.run_until(end_s)
        self.healed = True
        self.slow = False
        self.log("all faults are over")
        assert self.old is None
        until_s = self.now + RUN_WITHIN_S
        while not self.all_run():
            if self.now >= until_s:
                where = {worker: [node.name for node in self.nodes if worker in node.running] for worker in range(self.count)}
                raise Violation(f"not all workers run so long after the last fault: {where}")
            self.run_until(self.now + 1)
        if random.random() < 0.1:
            self.run_until(end_s + DELAY_MAX_S + BALANCED_WITHIN_S)
            self.check_balance()
        if random.random() < 0.2:
            self.check_leave()

    def all_run(self) -> bool:
        return all(sum(worker in node.running and worker not in node.fails for node in self.nodes) == 1 for worker in range(self.count))

    def check_leave(self) -> None:
        """Let a node leave that has workers, to one that lives. A node without an address is often refused and started
        again, so there may be no other node for a while."""
        if not all(node.address for node in self.nodes):
            return
        self.run_until(self.now + 3)
        node = max((node for node in self.nodes if node.up and not node.leaving), key=lambda node: len(node.running))
        if not any(other.up and not other.leaving and other is not node for other in self.nodes):
            return
        run = node.runs
        self.log(f"{node.name} leaves")
        self.leave(node, 0.0)
        self.run_until(self.now + LEFT_WITHIN_S)
        if node.up and node.runs == run:
            raise Violation(f"{node.name} has not left within {LEFT_WITHIN_S} s, and has the workers {sorted(node.running)}")

    def check_balance(self) -> None:
        if any(node.fails or not node.address for node in self.nodes):
            return
        total = sum(node.capacity for node in self.nodes)
        for node in self.nodes:
            part = self.count * node.capacity / total
            if abs(len(node.running) - part) >= 1:
                raise Violation(f"{node.name} has {len(node.running)} workers, and its part is {part:.2f}")
        if self.now - self.moved_s < STILL_S:
            raise Violation(f"a worker has moved {self.now - self.moved_s:.1f} s ago, long after the last fault")


def play(seed: int, options: Options) -> str | None:
    """Play a schedule; return which invariant it breaks, None: it breaks none."""
    try:
        World(seed, options).play()
    except Violation as violation:
        return str(violation)
    return None


def play_all(first: int, count: int, options: Options) -> tuple[int, str] | None:
    """Play schedules up to the first that breaks an invariant; return its seed and the text."""
    for seed in range(first, first + count):
        text = play(seed, options)
        if text is not None:
            return seed, text
    return None


def trace_of(seed: int, options: Options) -> list[str]:
    """Play a schedule; return its steps."""
    trace: list[str] = []
    try:
        World(seed, options, trace).play()
    except Violation as violation:
        trace.append(f"violation: {violation}")
    return trace
