"""Claim checks: envelopes whose batches stay with Shoal (the pattern of this name: Hohpe and Woolf, 2003).

A mirror does not look into an envelope, so it need not carry its batches. The record's key is that of an envelope, in a
version of its own; its value is a text for operators that find the record in a topic.

The key says which batches of the source they are, with their length and checksum. So another Shoal can redeem it, too,
by reading them again; and a client that has not read them cannot make one. (It could try all checksums: so a wrong one
must not be refused quickly.)
"""

__all__ = ["CLAIM_CHECK"]

CLAIM_CHECK = b"Shoal keeps the batches of this envelope: produce it through Shoal's target listener"
"""The record's value."""
