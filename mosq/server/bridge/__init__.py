"""Bridges: decides when to connect to another broker, to which address, and how long to pause. The data plane
connects."""
