"""Fetch side: runs of whole batches become envelopes, in place.

    record set, scanned -> eligible (are all plain? or rules for each batch) -> runs (what travels together) -> wrap

A batch that no rule permits stays raw. Offsets that a consumer sees stay the same.
"""
