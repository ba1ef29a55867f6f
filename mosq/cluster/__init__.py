"""The control plane of a cluster: which nodes live, and which of them runs which worker. It keeps both in Redis."""
