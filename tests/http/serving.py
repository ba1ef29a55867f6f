"""Serve the HTTP API in this process, with rules that let every client in."""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict

from mosq.config.model import Config, Listener
from mosq.log.recent import Recent
from mosq.server.admin.hot import Hot
from mosq.server.http.dashboard.api import Broker, Dashboard
from mosq.server.http.listeners import open_listeners
from mosq.server.http.pages import Pages
from mosq.server.http.server import HttpApi

WAIT_S = 30


class OpenGate:
    async def logs_in(self, *question):
        return True

    async def may_use(self, *question):
        return True

    async def may_control(self, *question):
        return True

    def has_rules(self, *question):
        return False

    def close(self):
        pass


class Server:
    def __init__(self, folder, gate=None, engine=None, **options):
        """`engine`: what a dashboard reads; None: there is no dashboard."""
        self.lines = []
        self.asked, self.release = threading.Event(), threading.Event()
        self.release.set()
        config, listener = Config(), Listener(0, "localhost")
        listener.protocol, listener.http_dir, listener.socket_domain = "http_api", str(folder), "ipv4"
        for name, value in options.items():
            setattr(listener, name, value)
        config.listeners = [listener]
        self.listeners = open_listeners([listener], [])
        self.port = self.listeners[0].sockets[0].getsockname()[1]
        self.api = HttpApi(self.listeners)
        pages = Pages(config, "version", self.stats, dashboard=engine and self.dashboard(config, engine))
        self.api.start(pages, gate or OpenGate(), lambda kind, line: self.lines.append(line))

    def dashboard(self, config, engine):
        return Dashboard(Broker(config, engine, Recent(), list, lambda: None, lambda kind, line: None, time.monotonic()), Hot(lambda: engine))

    def stats(self):
        self.asked.set()
        assert self.release.wait(WAIT_S)
        return defaultdict(int)

    def connect(self, data=b"", source="127.0.0.1", receive_bytes=None):
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(WAIT_S)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", self.port))
        sock.sendall(data)
        return sock

    def status(self, path="/api/v1/health"):
        with self.connect(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()) as sock:
            return int(sock.recv(12).split()[1])
