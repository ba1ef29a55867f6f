"""Put load on any broker and measure the outcome of each message (`mosq bench`).

The data plane of the load generator is in cext/bench. This package contains the scenarios, the options of a run, and
its results. The broker does not import this package.
"""
