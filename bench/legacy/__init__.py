"""`make bench-legacy`: 500 slow consumers of Fetch v2 and a fast one, on Kafka 3.9.1, which converts itself, and on
Kafka 4.3.0 behind Shoal.

stage         topics of large compressed batches, the same in both clusters; every record follows from its offset
message_sets  an old client's handling of a message set: CRCs, offsets, wrappers, the partial message at the end
fetching      Fetch v2 as bytes: the request, and an answer read piece by piece
slow          500 consumers in one process, some KB/s each (python -m bench.legacy.slow)
fast          one consumer that reads a topic at full speed
sampling      CPU and memory of brokers and Shoal
runs, report  one setup from start to end; a table, and report.json
"""
