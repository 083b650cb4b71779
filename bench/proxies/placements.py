"""Where the connections of a path have TLS."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CIPHER", "TLS", "KeyType", "Placement"]

CIPHER = "TLS_AES_256_GCM_SHA384"  # what OpenSSL's and Java's defaults agree on


class Placement(StrEnum):
    PLAIN = "plain"
    CLIENTS = "to clients"
    BROKERS = "to brokers"
    BOTH = "both"

    @property
    def to_clients(self) -> bool:
        return self in (Placement.CLIENTS, Placement.BOTH)

    @property
    def to_brokers(self) -> bool:
        return self in (Placement.BROKERS, Placement.BOTH)


TLS = (Placement.CLIENTS, Placement.BROKERS, Placement.BOTH)


class KeyType(StrEnum):
    ECDSA = "ECDSA P-256"
    RSA = "RSA 2048"
