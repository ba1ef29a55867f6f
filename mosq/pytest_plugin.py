"""The pytest plugin: starts a real broker for a test. Imports no broker code before a test asks for a broker."""

import contextlib

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq import Broker
    from mosq.config.embedded import OptionValue, Source

    Factory = Callable[..., Broker]

MARKER = "mosq(config=None, **options): configures the `mosq_broker` of this test; arguments as for mosq.Broker"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def mosq_broker_factory() -> "Iterator[Factory]":
    """`mosq_broker_factory(config, **options)` starts a broker with the arguments of `mosq.Broker(config, **options)`.
    All brokers stop after the test."""
    with contextlib.ExitStack() as stack:

        def start(config: "Source" = None, **options: "OptionValue") -> "Broker":
            from mosq import Broker

            return stack.enter_context(Broker(config, **options))

        yield start


@pytest.fixture
def mosq_broker(request: pytest.FixtureRequest, mosq_broker_factory: "Factory") -> "Broker":
    """A broker on a free port of 127.0.0.1; `@pytest.mark.mosq(config=..., max_qos=1)` configures it."""
    marker = request.node.get_closest_marker("mosq")
    return mosq_broker_factory(*marker.args, **marker.kwargs) if marker else mosq_broker_factory()
