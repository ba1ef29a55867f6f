"""Test the screen of `mosq top` with textual's pilot: real brokers and clients, and a model with 10,000 clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest
from textual.pilot import Pilot

import mosq
from mosq.tools.top import listing, poller
from mosq.tools.top.app import TopApp
from tests.ctl.answering import Answering
from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect, Disconnect, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.top.scene import HOT, Model, app, client, lines, rows, text, until

Play = Callable[[TopApp, Pilot[None]], Awaitable[None]]
CONTROL = "enable_control_api true\ncontrol_loopback true\n"
HOSTILE = ("[red]x[/red]", "\u202ered", "\u05d0\u05d1", "宽宽")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def connected(stack: ExitStack, port: int, name: str, *filters: str, **more: object) -> Wire:
    wire = Wire(port, 5)
    stack.callback(wire.close)
    wire.send(Connect(name, **more))
    assert isinstance(wire.read_packet(), Connack)
    if filters:
        wire.send(Subscribe(1, tuple((one, 1) for one in filters)))
        assert isinstance(wire.read_packet(), Suback)
    return wire


def play(port: int, steps: Play, first: int = 0, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        made = app(port, first=first)
        async with made.run_test(size=size) as pilot:
            await until(pilot, lambda: made.reading is not None or bool(made.trouble))
            await steps(made, pilot)
        made.broker.close()

    asyncio.run(run())


def test_the_screen_of_80_by_24(stack: ExitStack) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    for name in HOSTILE:
        connected(stack, broker.port, name, "a")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "CPU - " not in text(app) and "Clients 5 connected" in text(app))
        shown = lines(app)
        assert shown[0].startswith(f"mosq 0.2.0 at mqtt://127.0.0.1:{broker.port}  up ")
        assert "msg/s" in shown[2]
        assert "Drops 0/s" in shown[3]
        assert "5 clients, every 0.2 s" in shown[4]
        assert {"[red]x[/red]", "\\u202ered", "\\u05d0\\u05d1", "宽宽"} < set(rows(app))
        assert shown[-1].startswith("q end")

    play(broker.port, steps)


def test_names_that_no_broker_accepts_control_nothing(stack: ExitStack) -> None:
    there = stack.enter_context(Answering(Model([client("\x1b[2J\x9b31m[bold]\r\n", username="\x07", queued=1), client("[@click=app.bell]x[/]")])))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rows(app) == ["\\x1b[2J\\x9b31m~", "[@click=app.be~"])
        assert all(line.isprintable() for line in lines(app))

    play(there.port, steps)


def test_sort_by_each_column(stack: ExitStack) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    for n, name in enumerate("bca"):
        connected(stack, broker.port, name, *(f"f/{i}" for i in range(n + 1)))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        async def sorted_by(name: str) -> list[str]:
            while app.view.columns[app.view.sort].name != name:
                await pilot.press("greater_than_sign")
            await until(pilot, lambda: any(f"{name}{mark}" in lines(app)[5] for mark in "^v"))
            return [row for row in rows(app) if len(row) == 1]

        assert await sorted_by("SUBS") == ["a", "c", "b"]
        assert await sorted_by("CLIENT") == ["a", "b", "c"]
        await pilot.press("r")
        await until(pilot, lambda: "CLIENTv" in lines(app)[5])
        assert [row for row in rows(app) if len(row) == 1] == ["c", "b", "a"]
        for column in app.view.columns:
            await sorted_by(column.name)

    play(broker.port, steps)


def test_a_filter(stack: ExitStack) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    for name in ("sensor-1", "sensor-2", "qrk"):
        connected(stack, broker.port, name)

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"qrk")      # also q and k, which are keys of the table
        await until(pilot, lambda: rows(app)[0] == "qrk" and "1 clients, with 'qrk'" in text(app))
        await pilot.press("enter", "slash", *["backspace"] * 3, *"SENS", "enter")
        await until(pilot, lambda: rows(app) == ["sensor-1", "sensor-2"])
        await pilot.press("slash", *"\x20[b]", "enter")
        await until(pilot, lambda: "No row has this text." in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "4 clients, every" in text(app))

    play(broker.port, steps)


def test_a_client_is_kicked_after_a_question(stack: ExitStack) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    one = connected(stack, broker.port, "[bold]one", "a", "b", "c")
    connected(stack, broker.port, "other")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        app.view.sort_by_name("subs")
        await until(pilot, lambda: rows(app)[0] == "[bold]one" and len(rows(app)) == 3)
        for key in ("n", "enter", "escape", "k"):
            await pilot.press("k")
            await until(pilot, lambda: "Disconnect the client '[bold]one'? Its session stays." in text(app))
            await pilot.press(key)
            await until(pilot, lambda: "3 clients" in text(app))
        await pilot.press("k", "y")
        await until(pilot, lambda: "2 clients" in text(app) or "Disconnected '[bold]one'" in text(app))
        packet = await asyncio.to_thread(one.read_packet)
        assert isinstance(packet, Disconnect)
        assert packet.rc == 0x98
        await until(pilot, lambda: len(rows(app)) == 2)

    play(broker.port, steps)


def test_a_client_that_has_left_is_not_kicked(stack: ExitStack) -> None:
    model = Model([client("gone")])

    def answer(command: dict[str, object]) -> dict[str, object]:
        return {"error": "Client not connected"} if command["command"] == "kickClient" else model(command)

    there = stack.enter_context(Answering(answer))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("k", "y")
        await until(pilot, lambda: "Not done: Client not connected." in text(app))

    play(there.port, steps)


def test_a_client_is_inspected(stack: ExitStack) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    one = connected(stack, broker.port, "one", "a/[b]", "x/\x7f宽/\u05d0".replace("\x7f", ""), username="ann", password=b"", clean=False,
                    props=((P.SESSION_EXPIRY, 1000),))  # fmt: skip

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        app.view.sort_by_name("subs")
        await until(pilot, lambda: rows(app)[0] == "one")
        await pilot.press("enter")
        await until(pilot, lambda: "username:      ann" in text(app))
        await pilot.press("end")
        await until(pilot, lambda: "a/[b]" in text(app) and "x/宽/\\u05d0" in text(app))
        one.close()
        await pilot.press("r")
        await until(pilot, lambda: "connected:     no" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "offline" in text(app))
        await pilot.press("o")
        await until(pilot, lambda: "connected ones only" in text(app) and "offline" not in text(app))

    play(broker.port, steps, size=(80, 40))


def test_pause_and_interval(stack: ExitStack) -> None:
    model = Model([client("a")])
    there = stack.enter_context(Answering(model))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("plus")
        await until(pilot, lambda: "every 0.5 s" in text(app))
        await pilot.press("plus", "minus", "space")
        await until(pilot, lambda: "PAUSED" in text(app))
        before = app.reading
        await pilot.press("k", "n", "greater_than_sign")    # keys work in a pause
        while app.reading is not before:                    # a reading that was under way when the pause began
            before = app.reading
            await pilot.pause()
        asked = len(model.asked)
        await pilot.press("down", "up")
        assert len(model.asked) == asked
        await pilot.press("p")
        await until(pilot, lambda: len(model.asked) > asked)

    play(there.port, steps)


def test_the_choice_stays_with_its_client(stack: ExitStack) -> None:
    model = Model([client(name, queued=n) for n, name in enumerate("abcde")])
    there = stack.enter_context(Answering(model))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        assert app.grid.chosen is not None
        assert app.grid.chosen["clientid"] == "c"
        model.clients = [client(name, queued=-n) for n, name in enumerate("abcdef")]
        await until(pilot, lambda: rows(app)[:2] == ["a", "b"])
        await pilot.press("r")
        assert app.grid.chosen["clientid"] == "c"
        await pilot.press("home")
        assert app.grid.place == 0

    play(there.port, steps)


def test_hot_tables(stack: ExitStack) -> None:
    there = stack.enter_context(Answering(Model([client(f"c0000{n}") for n in range(10)], HOT)))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        for title, name in (("topics", "a/b"), ("prefixes", "a"), ("publishers", "c00007"), ("receivers", "c00008"), ("slow", "c00009")):
            await pilot.press("tab")
            await until(pilot, lambda title=title, name=name: f" {title}, every" in text(app) and rows(app)[0] == name)  # type: ignore[misc]
        await pilot.press("2")
        await until(pilot, lambda: "[bold]\\x1b[2J" in text(app))
        await pilot.press("k", "1", "shift+tab")                # a topic cannot be kicked
        await until(pilot, lambda: "250 ms" in text(app))

    play(there.port, steps)


def test_a_broker_without_hot(stack: ExitStack) -> None:
    there = stack.enter_context(Answering(Model([client("a")])))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "This broker does not know the command `hot`" in text(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys of mosq top" in text(app))

    play(there.port, steps, first=1)


def test_ten_thousand_clients(stack: ExitStack) -> None:
    model = Model([client(f"c{n:05}", queued=n) for n in range(10_000)])
    there = stack.enter_context(Answering(model))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "10000 clients, every" in text(app))
        assert rows(app)[:2] == ["c09999", "c09998"]
        await pilot.press("slash", *"c0123", "enter")
        await until(pilot, lambda: "10 clients, with 'c0123'" in text(app))
        await pilot.press("escape", "end")
        await until(pilot, lambda: rows(app)[-1] == "c00000")
        assert len(lines(app)) == 24

    play(there.port, steps)
    turns = model.asked.count("getStats")
    assert model.asked.count("listClients") <= turns * 10_000 // listing.PAGE


def test_a_broker_that_restarts(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "PAUSES_S", (0.1,))
    broker = stack.enter_context(Broker(CONTROL))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "1 clients, every" in text(app))
        await asyncio.to_thread(broker.stop)
        await until(pilot, lambda: "Next attempt in 0.1 s." in app.trouble and "Is there a broker at" in text(app))
        connected_before = lines(app)[0]
        await asyncio.to_thread(broker.start)
        await until(pilot, lambda: "1 clients, every" in text(app))
        assert app.trouble == ""
        assert lines(app)[0] != connected_before or app.reading is not None

    play(broker.port, steps)


def test_a_reload_that_takes_the_right_away(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "PAUSES_S", (0.1,))
    broker = stack.enter_context(Broker(f"{CONTROL}acl_file {{dir}}/acl\n", {"acl": "topic readwrite $CONTROL/mosq/broker/#\n"}))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "1 clients, every" in text(app))
        (broker.dir / "acl").write_text("topic readwrite #\n")
        broker.send_signal(1)
        await until(pilot, lambda: "topic readwrite $CONTROL/mosq/#" in app.trouble)

    play(broker.port, steps)
