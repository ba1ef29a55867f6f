"""Names the results of a change of the document of a cluster, and of the question for its newest version: the answers
of the agent of a node, and the errors that an administrator gets for them."""

from mosq.auth.dynsec.document import BYTES_MAX

DONE, CHANGED, AWAY, DOUBT, REFUSED, DAMAGED, LARGE = "done", "changed", "away", "doubt", "refused", "damaged", "large"
ERRORS = {
    CHANGED: "Other nodes change the rules all the time, and nothing was changed",
    AWAY: "Redis does not confirm changes now, and nothing was changed",
    DOUBT: "Redis has not confirmed the change in time; it may have been made",
    REFUSED: "Redis has refused the change, and nothing was changed",
    DAMAGED: "The document in Redis is damaged, and nothing was changed",
    LARGE: f"The document would have more than {BYTES_MAX} bytes, and nothing was changed",
}
