"""`mosq cluster`: commands for the operator of a cluster."""
