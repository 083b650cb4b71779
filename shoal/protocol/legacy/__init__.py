"""Serving clients of Kafka 0.8-0.10 from brokers that no longer speak with them (KIP-283, KIP-896; design section 5): everything but the sockets.

message       one message of magic 0 or 1, written
lz4_header    the LZ4 frames of magic 0, whose header checksum is not that of the standard
reading       record sets of magic 0 and 1, read
up            such a set as ONE batch of magic 2
produce       Produce v0-v2: requests read, written for the broker as v3, its answers written as the client's version

down            a record set of magic 2 as one of magic 0 or 1, piece by piece; `failure` where that cannot be. Its parts: batch_messages (one
                batch; record_loop does it, over a window of the plain records), old_entry, aborted, and message_source, what these share
overflow        what fills a promised record set to its size
fetch           Fetch v0-v3: requests read, written for the broker as v10, its answers read
fetch_heads     the answer to v0-v3, all but the record sets
"""
