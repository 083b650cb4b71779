"""Record sets, batches and records (format v2).

    recordset: where batches begin -> batch: header and checksum -> record: key, value, headers

`producible` and `stamping` edit the headers of many batches at once. `rebatch` cuts a batch that a broker calls too
large. `key_sample` looks whether records have keys. `aborted` finds batches of aborted transactions.
"""
