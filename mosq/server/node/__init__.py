"""A node of a cluster: a parent of workers whose stores are in Redis, and the agent that decides which of them run here
(docs/cluster.md)."""
