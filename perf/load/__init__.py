"""Load tests with locust: perf/locustfile.py is what locust reads, `python -m perf.load` starts a broker and locust.

A worker process is a world of its own: whoever is meant to get a message lives in the process that sends it. So each
times with one clock and counts what it has sent itself, wherever the other workers run.

The rooms: options (what is asked for), ledger (who is owed what), link (one connection), client (a link with what it is
owed), run (a process during one test), users (the scenarios), hooks (into locust), results (locust.json), driver (the
command).
"""
