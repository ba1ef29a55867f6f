"""Test mosq.Broker for asyncio."""

import asyncio
import threading

import pytest

import mosq
from tests.embed.client import Outside


def run(scenario):
    """Run scenario(broker) in its own event loop, for at most 30 s."""

    async def main():
        async with asyncio.timeout(30), mosq.Broker() as broker:
            await scenario(broker)

    asyncio.run(main())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_qos(qos):
    async def scenario(broker):
        async with broker.subscribe("a/#", qos=qos) as messages:
            for i in range(100):
                await broker.publish("a/b", str(i), qos=qos, user_properties={"n": str(i)})
            got = [await messages.get(5) for _ in range(100)]
        assert [(int(m.payload), m.qos, m.properties.user_properties) for m in got] == \
            [(i, qos, (("n", str(i)),)) for i in range(100)]

    run(scenario)


def test_iteration_ends_when_the_broker_stops():
    async def main():
        got = []
        async with asyncio.timeout(30), mosq.Broker() as broker:
            messages = await broker.subscribe("t", qos=1)

            async def consume():
                got.extend([message.payload async for message in messages])

            task = asyncio.create_task(consume())
            await broker.publish("t", b"1", qos=1)
            await broker.stop()
            await task
            with pytest.raises(mosq.BrokerStopped):
                await broker.publish("t", b"2")
        assert got == [b"1"]

    asyncio.run(main())


def test_cancelling_get_loses_nothing():
    async def scenario(broker):
        async with broker.subscribe("t", qos=1) as messages:
            got = []
            for i in range(100):
                task = asyncio.create_task(messages.get())
                await asyncio.sleep(0)
                await broker.publish("t", str(i), qos=1)
                task.cancel()
                try:
                    got.append((await task).payload)
                except asyncio.CancelledError:
                    pass
            while len(got) < 100:
                got.append((await messages.get(5)).payload)
        assert [int(p) for p in got] == list(range(100))

    run(scenario)


def test_timeout_and_close():
    async def scenario(broker):
        messages = await broker.subscribe("t")
        with pytest.raises(TimeoutError):
            await messages.get(0.01)
        waiting = asyncio.create_task(messages.get())
        await asyncio.sleep(0)
        await messages.close()
        with pytest.raises(mosq.SubscriptionClosed):
            await waiting
        with pytest.raises(mosq.SubscriptionClosed):
            await broker.subscribe("t").get()

    run(scenario)


def test_tasks_publish_at_the_same_time():
    async def scenario(broker):
        async with broker.subscribe("#", qos=2) as messages:
            await asyncio.gather(*(broker.publish(f"t/{i}", qos=i % 3) for i in range(60)))
            assert {(await messages.get(5)).topic for _ in range(60)} == {f"t/{i}" for i in range(60)}

    run(scenario)


def test_a_cancelled_publish_harms_no_later_one():
    async def scenario(broker):
        async with broker.subscribe("t", qos=1) as messages:
            task = asyncio.create_task(broker.publish("t", b"x" * 1_000_000, qos=1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await broker.publish("t", b"after", qos=1)
            while (await messages.get(5)).payload != b"after":
                pass

    run(scenario)


def test_clients_stats_and_kick():
    async def scenario(broker):
        assert broker.ports == [broker.port] and broker.url.endswith(str(broker.port))
        client = await asyncio.to_thread(Outside, broker.port, "one")
        with client:
            assert [c["id"] for c in await broker.clients()] == ["one"]
            assert (await broker.stats())["clients_connected"] == 1
            assert await broker.kick("one")
            assert not await broker.kick("two")

    run(scenario)


def test_errors():
    async def scenario(broker):
        with pytest.raises(mosq.ReasonError):
            await broker.subscribe("#/a")
        with pytest.raises(mosq.PublishError):
            await broker.publish("t", b"x" * 3_000_000, qos=1)
        with pytest.raises(ValueError):
            await broker.publish("+")

    run(scenario)


def test_no_thread_stays():
    before = threading.active_count()
    for _ in range(20):
        asyncio.run(main_once())
    assert threading.active_count() == before


async def main_once():
    async with mosq.Broker() as broker, broker.subscribe("t") as messages:
        await broker.publish("t", b"1")
        assert (await messages.get(5)).payload == b"1"


def test_explain():
    async def scenario(broker):
        async with broker.subscribe("a/+"):
            assert [f["filter"] for f in (await broker.explain("a/b"))["filters"]] == ["a/+"]

    run(scenario)
