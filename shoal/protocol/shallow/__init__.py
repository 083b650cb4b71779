"""Envelopes (KIP-712): one record that carries whole record batches through a mirror.

    source log --wrap--> envelope --(mirror copies a record)--> envelope --unwrap--> target log
                  |                                                         |
                  +------------------------ interlock ----------------------+

`wrap`, `unwrap` and `interlock` import nothing of each other. They share `envelope` (the record's key), `facts` (its
headers), `token` (a header that identifies one record), `fingerprint` (recognises any record), `batch_row` (many small
batches as columns) and `refused` (batches that the target refused and that are not wrapped again). Damaged input
becomes a value (`Refused`, `Reason`), never an exception.

A `claim_check` is an envelope without its batches, which are in `kept_batches`. `same_offsets` has the rules for copies
with the offsets of their source, and a `locator` is the envelope of such a copy. `monitor` knows lag and gaps of
mirrors, and `translate` which target offset a source offset has.
"""
