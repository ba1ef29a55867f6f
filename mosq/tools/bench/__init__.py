"""`mosq bench`: loads for any broker, and what became of each message. Its data plane is cext/bench; here stand the
scenarios, what a run is told, and what it tells. Nothing of this is loaded by a broker.
"""
