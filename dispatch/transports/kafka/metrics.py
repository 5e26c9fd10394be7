"""What a process sees of its broker. The lag is the depth gauge, read at the scrape."""

from prometheus_client import Counter

_PREFIX = "agent_utilities_dispatch_kafka"

REBALANCES = Counter(
    f"{_PREFIX}_rebalances", "Changes of this process's partitions: assigned, revoked, lost.", ["change"]
)
for _change in ("assigned", "revoked", "lost"):
    REBALANCES.labels(change=_change)  # from 0 on, so that the first one is seen as an increase
PARKED = Counter(f"{_PREFIX}_parked", "Deliveries acked because their turns were not claimable yet: their rows say so.")
REPUBLISHED = Counter(f"{_PREFIX}_republished", "Envelopes that the republish tick sent.")
