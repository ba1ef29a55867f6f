"""The performance lab: suites of `mosq bench` runs over several brokers, side by side, into a folder of results."""
