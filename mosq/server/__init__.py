"""The broker process: starts the data plane in a thread, then handles signals, reloads, log lines and requests.

Importing this package loads nothing. `control.py` is the main thread. The sub-packages answer control topics (`admin`),
decide when bridges connect (`bridge`) and serve the HTTP API (`http`).
"""
