"""Run suites of `mosq bench` over several brokers side by side, into a folder of results (the performance lab)."""
