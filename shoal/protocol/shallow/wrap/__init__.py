"""Fetch side: runs of whole batches become envelopes, in place.

    record set, scanned -> eligible (all at once, or rules per batch) -> runs (batches of one envelope) -> wrap

Batches that are not eligible remain raw. The offsets that a consumer sees do not change.
"""
