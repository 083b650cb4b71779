"""Envelopes (KIP-712): one record that carries whole record batches through a mirror.

    source log --wrap--> envelope --(mirror copies a record)--> envelope --unwrap--> target log
                  |                                                         |
                  +------------------------ interlock ----------------------+

`wrap`, `unwrap` and `interlock` import nothing of each other. They share `envelope` (the record's key), `facts` (its
headers), `token` (a header that identifies one record), `fingerprint` (recognises any record), `batch_row` (many small
batches as columns) and `refused` (batches that the target refused and that are not wrapped again). Damaged input
becomes a value (`Refused`, `Reason`), never an exception.
"""
