"""Record sets, batches and records (format v2).

    recordset: where batches begin -> batch: header and checksum -> record: key, value, headers

`scan` reads all headers of a set once. `producible` edits the headers of many batches at once. `rebatch` splits a batch
that a broker calls too large. `key_sample` checks whether records have keys. `aborted` finds batches of
aborted transactions.
"""
