"""The names of the paths to the broker, in the order of tables."""

from __future__ import annotations

__all__ = ["DIRECT", "HAPROXY", "KAFKA_PROXY", "KROXYLICIOUS", "PROXIES", "SHOAL"]

DIRECT, HAPROXY, SHOAL, KROXYLICIOUS, KAFKA_PROXY = "direct", "HAProxy", "Shoal", "Kroxylicious", "kafka-proxy"
PROXIES = (HAPROXY, SHOAL, KROXYLICIOUS, KAFKA_PROXY)
