"""Import the plugin's own fixtures by name, so that they exist whether or not the package is installed. With `--workers`, brokers in the
test's program have workers too, unless their configuration says how many."""

from __future__ import annotations

import functools

import pytest

import mosq
from mosq.pytest_plugin import mosq_broker, mosq_broker_factory
from tests.harness.broker import has_workers

__all__ = ["mosq_broker", "mosq_broker_factory"]


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_workers():
        return
    made = mosq.Broker.__init__

    @functools.wraps(made)
    def with_workers(self: mosq.Broker, config: str | None = None, **options: object) -> None:
        if not {"workers", "cluster_local"} & options.keys() and "cluster_local" not in str(config):
            options["workers"] = 2
        made(self, config, **options)       # type: ignore[arg-type]

    monkeypatch.setattr(mosq.Broker, "__init__", with_workers)
