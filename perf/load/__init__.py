"""Run load tests with locust: locust reads perf/locustfile.py, `python -m perf.load` starts a broker and locust.

Each worker process is independent: the receivers of a message live in the process that sends it. So each process
measures times with one clock and counts its own messages, wherever the other workers run.

The modules: options (arguments), ledger (pending messages), client (a connection with its pending messages), link (one
connection), run (a process during one test), users (the scenarios), hooks (into locust), results (locust.json), driver
(the command).
"""
