"""Envelopes (KIP-712): one record that carries whole record batches through a mirror.

    source log --wrap--> envelope --(mirror copies a record)--> envelope --unwrap--> target log
                  |                                                         |
                  +------------------------ interlock ----------------------+

`wrap`, `unwrap` and `interlock` import nothing of each other. All three use: `envelope` (the record's key), `facts`
(what its headers state), `token` (a header by which one record is recognised) and `fingerprint` (how any record is
recognised), `batch_row` (many small batches as columns), `refused` (batches that the target refused and that are not
wrapped again). Damaged input is a value (`Refused`, `Reason`), never an exception.
"""
