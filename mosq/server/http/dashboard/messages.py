"""Reads messages for the dashboard, by clients inside the process (inside.py): retained messages, the filters that
match a topic, and the live tail of a filter.

Each message is checked against the rights of its user before it is shown. The tail is bounded: at most TAIL_MESSAGES
and TAIL_BYTES of a second. When a second has more, the tail unsubscribes until the next second, so a fast filter costs
the broker no more than a slow one.
"""

import asyncio
import json
import time
from collections import Counter

from mosq.server.http.dashboard.feed import CHECK_EVERY_S, Stream, event
from mosq.server.http.dashboard.inside import NO_RETAINED, REFUSED, ClosedError, Inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from mosq.server.http.dashboard.inside import Message
    from mosq.server.http.dashboard.rights import Rights

    Adopt = Callable[[int], None]

QUIET_S = 0.25                  # retained messages come at once; after this pause the last one has come
RETAINED_WITHIN_S = 4.0
SCAN_MESSAGES = 5000
SCAN_BYTES = 16 << 20
RIGHTS_WITHIN_S = 5.0           # a plugin may need long for the right to read each topic, and other questions wait
OTHERS_MAX = 20_000             # new messages that come while retained ones are read
LEVELS_MAX, LEVELS_CHARACTERS_MAX = 500, 1 << 20        # of one answer; a level may have 65,535 bytes
SHOWN_BYTES = 1024              # of a payload in the tail
LOOK_BYTES = 32 << 10           # of a payload that is looked at
EXPLAIN, EXPLAINED = "$CONTROL/mosq/index/v1", "$CONTROL/mosq/index/v1/response"
EXPLAIN_WITHIN_S = 3.0
TAILS_MAX, TAILS_OF_USER_MAX = 8, 4
TAIL_MESSAGES, TAIL_BYTES = 50, 1 << 20
TAIL_EVERY_S = 0.25
HEARTBEAT = b":\n\n"            # a comment: without output the end of a client is not noticed


class Messages:
    """The readers of all pages. Retained messages and explanations share one connection, so there is one at a time
    (turns.py)."""

    def __init__(self, adopt: "Adopt") -> None:
        self._adopt = adopt
        self._inside: Inside | None = None
        self.tails: Counter[bytes] = Counter()      # by asker

    def close(self) -> None:
        if self._inside is not None:
            self._inside.close()

    async def _connection(self) -> Inside:
        if self._inside is None or self._inside.closed:
            self._inside = Inside()
            await self._inside.open(self._adopt)
        return self._inside

    async def retained(self, filter: str) -> "tuple[list[Message], bool]":
        """Return retained messages and whether these are all. Raises ClosedError."""
        inside = await self._connection()
        reading = _Reading()
        inside.take = reading.take
        try:
            if await inside.subscribe(filter) >= REFUSED:
                return [], True
            await reading.wait()
            await inside.unsubscribe(filter)
        finally:
            inside.take = _ignore
        return reading.found, not reading.full

    async def levels(self, prefix: str, rights: "Rights") -> "dict[str, Any]":
        """Return the next level of the retained topics below a prefix: name, number and bytes of the messages below
        it, and the size of its own message or None. `read`: the messages that the user may read."""
        found, complete = await self.retained(f"{prefix}/#" if prefix else "#")
        levels: dict[str, list[Any]] = {}
        own, read = None, 0
        until_s = time.monotonic() + RIGHTS_WITHIN_S
        for i, (topic, payload, _, _) in enumerate(found):
            if time.monotonic() >= until_s:
                complete = False
                break
            if i % 100 == 0:
                await asyncio.sleep(0)
            if not await rights.may_read(topic):
                continue
            read += 1
            if topic == prefix:
                own = len(payload)
                continue
            rest = topic[len(prefix) + 1:] if prefix else topic
            name, slash, _ = rest.partition("/")
            level = levels.setdefault(name, [0, 0, None])
            level[0] += 1
            level[1] += len(payload)
            if not slash:
                level[2] = len(payload)
        rows: list[dict[str, Any]] = []
        room = LEVELS_CHARACTERS_MAX
        for name, (n, size, mine) in sorted(levels.items(), key=lambda one: (-one[1][0], one[0]))[:LEVELS_MAX]:
            room -= len(name)
            if room < 0:
                break
            rows.append({"name": name, "topics": n, "bytes": size, "own": mine})
        return {"prefix": prefix, "own": own, "levels": rows, "more": len(levels) - len(rows),
                "read": read, "complete": complete}

    async def look(self, topic: str) -> "dict[str, Any] | None":
        """Return the retained message of a topic; None if there is none."""
        found, _ = await self.retained(topic)
        return described(found[0], LOOK_BYTES) if found else None

    async def explain(self, topic: str) -> "dict[str, Any] | None":
        """Return the answer of the index; None if it does not come. docs/index.md describes it."""
        inside = await self._connection()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def take(message: "Message") -> None:
            if message[0] == EXPLAINED and not answer.done():
                answer.set_result(message[1])

        inside.take = take
        try:
            inside.publish(EXPLAIN, topic.encode())
            found: dict[str, Any] = json.loads(await asyncio.wait_for(answer, EXPLAIN_WITHIN_S))
            return found
        except TimeoutError:
            inside.close()          # a late answer must not look like that to the next question
            return None
        finally:
            inside.take = _ignore


def _ignore(message: "Message") -> None:
    """Discard a message that comes between two requests."""


class _Reading:
    """Collects retained messages until none comes for QUIET_S."""

    def __init__(self) -> None:
        self.found: list[Message] = []
        self.full = False
        self._bytes = self._others = self._seen = 0

    def take(self, message: "Message") -> None:
        if not message[3]:
            self._others += 1           # a new message
            self.full = self.full or self._others >= OTHERS_MAX
            return
        self._seen += 1
        if len(self.found) >= SCAN_MESSAGES or self._bytes >= SCAN_BYTES:
            self.full = True
            return
        self.found.append(message)
        self._bytes += len(message[0]) + len(message[1])

    async def wait(self) -> None:
        until_s, seen = time.monotonic() + RETAINED_WITHIN_S, -1
        while not self.full and seen != self._seen:
            seen = self._seen
            await asyncio.sleep(QUIET_S)
            if time.monotonic() >= until_s:
                self.full = True


def described(message: "Message", most: int) -> "dict[str, Any]":
    """Return a message for a page, with the beginning of its payload; one that is no UTF-8 text is in hexadecimal. The
    QoS is missing, because the dashboard reads at QoS 0."""
    topic, payload, _, retain = message
    part = payload[:most]
    shown: dict[str, Any] = {"topic": topic, "size": len(payload), "retain": retain}
    try:
        # the cut may be inside of a character
        shown["text"] = part.decode() if len(part) == len(payload) else part.decode("utf-8", "ignore")
        if len(part) < len(payload) and len(shown["text"].encode()) < len(part) - 3:
            raise ValueError
    except ValueError:
        shown.pop("text", None)
        shown["hex"] = part[:most // 2].hex(" ")
    return shown


class Tail(Stream):
    """The messages of a filter, as they come."""

    def __init__(self, messages: Messages, adopt: "Adopt", filter: str, rights: "Rights", headers: dict[str, str]
                 ) -> None:
        super().__init__(headers, rights.still_allowed)
        self.messages, self.adopt, self.filter, self.rights = messages, adopt, filter, rights
        self._waiting: list[Message] = []
        self._n = self._bytes = 0       # of this second
        self._crowded = asyncio.Event()

    def take(self, message: "Message") -> None:
        """Take a message that the broker sent, unless this second has had enough."""
        if self._n >= TAIL_MESSAGES or self._bytes >= TAIL_BYTES:
            self._crowded.set()
            return
        self._n += 1
        self._bytes += len(message[1])
        self._waiting.append(message)

    async def events(self, gone: "asyncio.Task[None]", put: "Callable[[bytes], Awaitable[None]]") -> None:
        """Send messages until the client has gone."""
        inside = Inside()
        self.messages.tails[self.rights.asker] += 1
        try:
            await inside.open(self.adopt)
            inside.take = self.take
            if await inside.subscribe(self.filter, NO_RETAINED) >= REFUSED:
                await put(event("refused", "The broker refuses the filter."))
                return
            await put(event("open", {"most": TAIL_MESSAGES}))
            await self._follow(inside, gone, put)
        except ClosedError as error:
            await put(event("refused", str(error)))
        finally:
            self.messages.tails -= Counter((self.rights.asker,))    # forgets askers without a tail
            inside.close()

    async def _follow(self, inside: Inside, gone: "asyncio.Task[None]", put: "Callable[[bytes], Awaitable[None]]"
                      ) -> None:
        subscribed, second_s, check_s = True, time.monotonic() + 1.0, time.monotonic() + CHECK_EVERY_S
        crowded, heard = self._crowded, False
        while not gone.done() and not inside.closed:
            await self._pause(gone, crowded, subscribed)
            if crowded.is_set() and subscribed:
                await inside.unsubscribe(self.filter)
                subscribed = False
            waiting, self._waiting = self._waiting, []
            found = [described(one, SHOWN_BYTES) for one in waiting if await self.rights.may_read(one[0])]
            if found or crowded.is_set():
                await put(event("messages", {"messages": found, "sampled": crowded.is_set()}))
                heard = True
            now_s = time.monotonic()
            if now_s >= second_s:
                second_s, self._n, self._bytes = now_s + 1.0, 0, 0
                crowded.clear()
                if not heard:
                    await put(HEARTBEAT)
                heard = False
                if not subscribed:
                    await inside.subscribe(self.filter, NO_RETAINED)
                    subscribed = True
            if now_s >= check_s:
                check_s = now_s + CHECK_EVERY_S
                if not await self.allowed():
                    await put(event("refused", "You no longer have the right to read this."))
                    return

    async def _pause(self, gone: "asyncio.Task[None]", crowded: asyncio.Event, subscribed: bool) -> None:
        """Wait a moment; less if the client goes, or if the second has had enough while the broker sends more."""
        waits: list[asyncio.Task[Any]] = [gone]
        if subscribed:
            waits.append(asyncio.create_task(crowded.wait()))
        await asyncio.wait(waits, timeout=TAIL_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        for one in waits[1:]:
            one.cancel()
