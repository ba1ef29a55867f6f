"""Names, types and help texts of the metrics that come from the statistics of the data plane, by their keys in
Engine.stats(). Knows neither HTTP nor the format of the metrics (metrics.py).

Names follow Prometheus: base units, a counter ends with `_total`, which the format appends. Every key of Engine.stats()
is in exactly one of these tables; a test checks that.
"""

GAUGE, COUNTER = "gauge", "counter"
MICROSECONDS = 1e-6

# key, type, name without `mosq_`, unit of the key in the unit of the metric, help
PLAIN = (
    ("clients_connected", GAUGE, "clients_connected", 1, "Connected clients. After a sudden fall, look for a failed "
     "network, an expired certificate, or refused connections."),
    ("clients_total", GAUGE, "sessions", 1, "Sessions, with and without a connection."),
    ("clients_disconnected", GAUGE, "sessions_disconnected", 1, "Sessions without a connection. If it only grows, set "
     "persistent_client_expiration or shorter expiry intervals."),
    ("clients_max", GAUGE, "clients_connected_max", 1, "Largest number of clients connected at the same time."),
    ("clients_expired", COUNTER, "sessions_expired", 1, "Sessions that ended because their expiry interval was over."),
    ("connections", COUNTER, "connects_accepted", 1, "Accepted CONNECT packets. A high rate with few clients means "
     "that clients connect again and again: look for equal client ids."),
    ("sockets", COUNTER, "connections_accepted", 1, "Accepted network connections."),
    ("connections_room", GAUGE, "connections_room", 1, "Connections for which there are file descriptors. Raise "
     "LimitNOFILE before mosq_clients_connected reaches it."),
    ("tls_handshakes", COUNTER, "tls_handshakes", 1, "Complete TLS handshakes of clients."),
    ("tls_handshakes_failed", COUNTER, "tls_handshakes_failed", 1, "TLS handshakes of clients that failed. Look at the "
     "log: certificates, versions, or no TLS at all."),
    ("newcomers", GAUGE, "newcomers", 1, "Connections that have not logged in. Many of them mean slow clients, a slow "
     "check of passwords, or an attack."),
    ("resident_bytes", GAUGE, "memory_limited_bytes", 1, "Memory that memory_limit is compared with; 0 without it."),
    ("messages_in", COUNTER, "packets_received", 1, "Received MQTT packets of any type."),
    ("messages_out", COUNTER, "packets_sent", 1, "Sent MQTT packets of any type."),
    ("publish_in", COUNTER, "publish_received", 1, "Received PUBLISH packets."),
    ("publish_out", COUNTER, "publish_sent", 1, "Sent PUBLISH packets."),
    ("publish_bytes_in", COUNTER, "publish_received_bytes", 1, "Payload of received PUBLISH packets."),
    ("publish_bytes_out", COUNTER, "publish_sent_bytes", 1, "Payload of sent PUBLISH packets."),
    ("publish_dropped", COUNTER, "publish_dropped", 1, "Dropped messages and deliveries; mosq_drops_total has the "
     "reasons."),
    ("bytes_in", COUNTER, "network_received_bytes", 1, "Bytes received from clients and other brokers."),
    ("bytes_out", COUNTER, "network_sent_bytes", 1, "Bytes sent to clients and other brokers."),
    ("links_bytes_in", COUNTER, "links_received_bytes", 1, "Bytes that workers have received from each other: "
     "links, and relayed TLS connections."),
    ("links_bytes_out", COUNTER, "links_sent_bytes", 1, "Bytes that workers have sent to each other."),
    ("unsent_bytes", GAUGE, "output_waiting_bytes", 1, "Output that waits for sockets. If it grows, subscribers read "
     "more slowly than others publish."),
    ("unsent_packets", GAUGE, "output_waiting_packets", 1, "Upper bound of the PUBLISH packets that wait for sockets."),
    ("store_messages", GAUGE, "messages", 1, "Messages in memory: queued, in flight, retained."),
    ("store_bytes", GAUGE, "messages_bytes", 1, "Messages in memory, with their payloads."),
    ("heap_bytes", GAUGE, "memory_counted_bytes", 1, "Messages, buffers of connections and the index."),
    ("heap_bytes_max", GAUGE, "memory_counted_max_bytes", 1, "Largest mosq_memory_counted_bytes since the start."),
    ("subscriptions", GAUGE, "subscriptions", 1, "Plain subscriptions: pairs of client and filter."),
    ("shared_subscriptions", GAUGE, "shared_subscriptions", 1, "Shared subscriptions: pairs of client and filter."),
    ("filters", GAUGE, "filters", 1, "Distinct filters with a subscriber or a group."),
    ("index_exact", GAUGE, "index_exact_filters", 1, "Filters in the exact index."),
    ("index_nodes", GAUGE, "index_nodes", 1, "Nodes of the tree: levels of the other filters."),
    ("index_depth", GAUGE, "index_depth", 1, "Levels of the deepest filter that ever was in the tree."),
    ("index_buckets", GAUGE, "index_buckets", 1, "Buckets of all hash tables of the index."),
    ("retained", GAUGE, "retained_messages", 1, "Retained messages. If it only grows, publishers retain under ever new "
     "topics: set retain_expiry_interval."),
    ("retained_system", GAUGE, "retained_system_messages", 1, "Retained messages of the broker itself, whose topics "
     "begin with $; mosq_retained_messages counts them too."),
    ("protocol_disconnects", COUNTER, "protocol_disconnects", 1, "Connections that the broker ended with a reason code "
     "of 0x80 or above. The log has the reasons."),
    ("work", COUNTER, "loop_work", 1, "Work of the loop: appended deliveries, sent bytes weighed in."),
    ("turns", COUNTER, "loop_turns", 1, "Turns of the loop. Each wakes the process once; turn_interval makes them "
     "fewer under load."),
    ("turn_work_max", GAUGE, "turn_work_max", 1, "Largest work of one turn of the loop since the start."),
    ("turn_us_max", GAUGE, "turn_max_seconds", MICROSECONDS, "Longest turn of the loop since the start. All clients "
     "wait that long."),
    ("auth_requests", COUNTER, "auth_requests", 1, "Requests of the loop to the checks of passwords and plugins."),
    ("auth_requests_pending", GAUGE, "auth_requests_pending", 1, "Requests to the checks without an answer. If it "
     "grows, a plugin or its server is too slow."),
    ("auth_requests_timed_out", COUNTER, "auth_requests_timed_out", 1, "Requests to the checks that were not answered "
     "within auth_timeout. Their clients were refused."),
    ("answers_stale", COUNTER, "auth_answers_stale", 1, "Answers of checks that came late, or for a client that had "
     "left."),
    ("upgrades", COUNTER, "upgrades", 1, "Processes that have taken over with mosq upgrade since the broker "
     "was started."),
    ("upgrades_moved", COUNTER, "upgrade_connections_moved", 1, "Connections that moved in upgrades."),
    ("upgrades_closed", COUNTER, "upgrade_connections_closed", 1, "Connections that upgrades closed because they could "
     "not move: TLS that OpenSSL seals, bridges, handshakes."),
    ("upgrade_pause_us", GAUGE, "upgrade_pause_seconds", MICROSECONDS, "Pause of the last upgrade."),
    ("events_lost", COUNTER, "plugin_events_lost", 1, "Events for plugins that were lost, because plugins are too "
     "slow."),
)

# the same of a broker with a store
STORE = (
    ("disk_live_bytes", GAUGE, "store_live_bytes", 1, "Approximate bytes of written records that are still needed."),
    ("disk_total_bytes", GAUGE, "store_size_bytes", 1, "Files of the store. Far above mosq_store_live_bytes, the "
     "cleaning cannot keep up with the disk."),
    ("disk_segments", GAUGE, "store_segments", 1, "Files that hold records."),
    ("disk_waiting_bytes", GAUGE, "store_waiting_bytes", 1, "Recorded bytes that are not yet on disk. If it grows, the "
     "disk is too slow, and acknowledgements wait."),
    ("disk_commits", COUNTER, "store_commits", 1, "Committed batches."),
    ("disk_commit_us", GAUGE, "store_last_commit_seconds", MICROSECONDS, "Time to write the last batch."),
    ("disk_messages_written", COUNTER, "store_messages_written", 1, "Messages with a record."),
    ("disk_messages_elided", COUNTER, "store_messages_elided", 1, "Messages without a record, because all subscribers "
     "had acknowledged them before."),
    ("disk_syncs", COUNTER, "store_syncs", 1, "Syncs of files."),
    ("disk_segments_cleaned", COUNTER, "store_segments_cleaned", 1, "Files that were removed after their live records "
     "were copied."),
    ("disk_errors", COUNTER, "store_errors", 1, "Calls of the store that failed. Look at the log and at the disk."),
)

# name without `mosq_`, type, name of the label, help, and the keys by the value of the label
LABELLED = (
    ("memory_bytes", GAUGE, "room", "Memory by what it is for.", {
        "messages": "store_bytes", "index": "index_bytes", "retained_tree": "retained_tree_bytes",
        "buffers": "buffers_used_bytes", "idle_buffers": "buffers_idle_bytes", "newcomers": "newcomers_bytes"}),
    ("match_cache_lookups", COUNTER, "result", "Look-ups of topics in the match cache.", {
        "hit": "index_cache_hits", "miss": "index_cache_misses"}),
    ("client_contexts", GAUGE, "state", "Client contexts of the pool.", {"used": "pool_used", "idle": "pool_idle"}),
)

# name and help; Engine.listener_drops() has the values, and their sums are the keys `drops_...`
DROPS = ("drops", "Dropped messages and deliveries by listener and reason; docs/monitoring.md has what to do about "
         "each reason.")
# prefix of the keys -> name, help; the rest of the key is the label `reason`
REASONS = (
    ("refused_", "refusals", "Refused or ended connections by reason; docs/monitoring.md has what to do about each."),
)
# bit of `disk_trouble` -> state; the value is 1 while the store is in that state
TROUBLE = {"full": 1, "error": 2, "memory": 4}

# histograms: name without `mosq_`, help, name of the label or "", and the keys in Engine.observed() by its value
HISTOGRAMS = (
    ("delivery_seconds", "Time from the arrival of a message until it is sent to a subscriber, by the QoS of the "
     "delivery. The waits in the queue, for the store and for the socket are in it.", "qos",
     {"0": "flush_qos0", "1": "flush_qos1", "2": "flush_qos2"}),
    ("store_commit_seconds", "Time from the first record of a batch until the batch is on disk. Acknowledgements wait "
     "for it.", "", {"": "commit"}),
    ("turn_seconds", "Length of a turn of the loop, without the wait for events. All clients wait for it.", "",
     {"": "turn"}),
    ("tls_handshake_seconds", "Time of a TLS handshake, from the first bytes of the client to its end; the waits for "
     "the client are in it.", "", {"": "handshake"}),
    ("match_seconds", "Time to find the subscriptions for a topic.", "", {"": "match"}),
)

# largest figure of all connected clients: its key in the answer of `hot`, name, help
SLOWEST = (
    ("delay_seconds", "slowest_delivery_seconds", "Longest time from arrival to delivery of the sampled messages of "
     "the last 30 to 60 s. `mosq ctl broker hot` names the client."),
    ("queue_age_seconds", "oldest_queued_seconds", "Time since the arrival of the oldest message in the queue of a "
     "connected client. `mosq ctl broker hot` names the client."),
    ("queue_length", "longest_queue_messages", "Messages in the longest queue of a connected client."),
    ("queue_bytes", "largest_queue_bytes", "Payloads in the largest queue of a connected client."),
    ("unsent_bytes", "largest_unsent_bytes", "Largest output that the socket of a client did not accept yet."),
)
# sums of all sessions: the key in the answer of `hot`, name, help
QUEUES = (
    ("queued", "queued_messages", "Deliveries that were never sent, in the queues of all sessions, also of those "
     "without a connection."),
    ("inflight", "inflight_messages", "Deliveries that were sent and not acknowledged, of all sessions."),
    ("queue_bytes", "queues_bytes", "Payloads of the deliveries that are queued or in flight."),
)
# value of the label -> list in the answer of `hot`, and its total
HOTTEST = {"topic": ("topics", "messages_per_second"), "publisher": ("publishers", "published_per_second"),
           "receiver": ("receivers", "deliveries_per_second")}

# keys of a stream, as in Engine.streams()
STREAMS = (
    ("records", COUNTER, "stream_records", "Records written to the stream."),
    ("lost", COUNTER, "stream_lost", "Messages that were not written to the stream. Look at the log and at the disk."),
    ("waiting_bytes", GAUGE, "stream_waiting_bytes", "Memory of blocks that wait for the disk."),
    ("disk_bytes", GAUGE, "stream_disk_bytes", "Files of the stream."),
    ("retired_records", COUNTER, "stream_retired_records", "Records that retention removed."),
    ("retired_unread", COUNTER, "stream_retired_unread", "Records that retain_bytes removed before a consumer had "
     "read them. Let the consumer run, or raise retain_bytes."),
    ("errors", COUNTER, "stream_errors", "Calls of the stream that failed. Look at the log and at the disk."),
)

# of several workers: field of a WorkerLoad -> kind, name, unit, help
LOADS = (
    ("cpu_us", COUNTER, "worker_cpu_seconds", 1e-6, "Processor time of a worker, also of its processes that have "
     "ended."),
    ("clients", GAUGE, "worker_clients_connected", 1, "Clients of a worker that are connected."),
    ("publish_in", COUNTER, "worker_publish_received", 1, "PUBLISH packets from clients of a worker."),
    ("publish_out", COUNTER, "worker_publish_sent", 1, "PUBLISH packets to clients of a worker."),
)
# WholeFigures.links, for each worker the sums of the links to it
LINK_COUNTERS = (
    ("link_messages", "Messages with QoS 1 and 2 that the links to a worker have sent, from all other workers."),
    ("link_dropped_messages", "QoS 0 messages that the links to a worker dropped, because they were full or it was "
     "starting."),
)
# key of Engine.link_figures() -> name, unit, help
LINK_GAUGES = (
    ("unacknowledged", "link_unacknowledged_messages", 1, "Messages of QoS 1 and 2 from a worker to another one that "
     "it has not acknowledged."),
    ("queued", "link_queued_messages", 1, "Of them, those that are not sent yet."),
    ("queued_bytes", "link_queued_bytes", 1, "Bytes that wait for the socket of the link."),
    ("latency_us", "link_latency_seconds", 1e-6, "From a message to the other worker to its acknowledgement, the last "
     "time that it was measured."),
)
# key of the overview of a cluster -> name, help
CLUSTER = (
    ("lease_s", "cluster_lease_seconds", "Seconds until the workers of this node must end, if Redis confirms no beat "
     "until then."),
    ("links_up", "cluster_links_up", "Links between two workers that are connected, of all nodes."),
    ("links_down", "cluster_links_down", "Links between two workers that are not connected although both have a node. "
     "Messages wait; look at the network between the nodes, and at the log."),
)
# count of the overview of a cluster -> name, help
CLUSTER_COUNTS = (
    ("clients", "cluster_clients_connected", "Connected clients of all nodes."),
    ("sessions", "cluster_sessions", "Sessions of all nodes, with and without a connection."),
    ("subscriptions", "cluster_subscriptions", "Plain subscriptions of all nodes: pairs of client and filter."),
)
