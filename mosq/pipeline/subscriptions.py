"""Find the subscriptions that exist at the end of the events that were read.

A subscription ends with its session, and with a start of the worker of its client, which has its events in one shard of
the stream. The worker then writes the existing subscriptions again.
"""

from typing import TYPE_CHECKING

from mosq.journal.kinds import ACCOUNT, CONNECT, DISCONNECT, REFUSED, START, SUBSCRIBE, UNSUBSCRIBE
from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STANDING = f"""
WITH events AS (SELECT node, shard, client_id, topic, kind, seq, CAST(payload AS STRING) AS body FROM {{bronze}}
  WHERE kind IN ({DISCONNECT}, {SUBSCRIBE}, {UNSUBSCRIBE}, {ACCOUNT}, {START})
  OR (kind = {CONNECT} AND reason < {REFUSED})),
lives AS (SELECT *, last_value(CASE WHEN kind = {CONNECT} THEN get_json_object(body, '$.expiry_s') END, true)
  OVER (PARTITION BY node, client_id ORDER BY seq) AS expiry_s FROM events
  WHERE kind IN ({CONNECT}, {DISCONNECT}, {ACCOUNT})),
ends AS (SELECT node, client_id, max(seq) AS seq FROM lives
  WHERE (kind = {CONNECT} AND get_json_object(body, '$.present') = 'false') OR (kind = {DISCONNECT} AND expiry_s = '0')
  OR (kind = {ACCOUNT} AND get_json_object(body, '$.ended') = 'true') GROUP BY node, client_id),
starts AS (SELECT node, shard, max(seq) AS start_seq FROM events WHERE kind = {START} GROUP BY node, shard),
last AS (SELECT node, client_id, topic, max_by(kind, seq) AS kind, max_by(body, seq) AS body, max(seq) AS seq,
  max_by(shard, seq) AS shard
  FROM events WHERE kind IN ({SUBSCRIBE}, {UNSUBSCRIBE}) GROUP BY node, client_id, topic)
SELECT node, last.client_id, last.topic AS filter, CAST(get_json_object(last.body, '$.qos') AS TINYINT) AS qos
FROM last LEFT JOIN starts USING (node, shard) LEFT JOIN ends USING (node, client_id)
WHERE last.kind = {SUBSCRIBE} AND last.seq > greatest(coalesce(ends.seq, -1), coalesce(start_seq, -1))
"""


def subscribed(bronze: "DataFrame") -> "DataFrame":
    """Return node, client_id, filter, qos of the existing subscriptions."""
    if not {"node", "shard", "kind", "topic", "client_id", "seq", "payload"} <= set(bronze.columns):
        raise MosqPipelineError(
            "this is not a bronze table: it has no node, shard, kind, topic, client_id, seq and payload"
        )
    return bronze.sparkSession.sql(STANDING, bronze=bronze)
