"""`mosq trace`: follow a client, a topic or an address of a running broker, packet by packet."""
