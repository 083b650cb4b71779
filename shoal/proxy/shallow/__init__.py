"""Shallow mirroring (KIP-712): a pair of listeners around a stock MirrorMaker 2.

    source broker -> wrap -> mirror -> unwrap -> target broker
                      |  runs of batches  |   envelopes are opened,
                      |  become envelopes |   batches are appended as they were
                      +---- interlock ----+

`wrap` puts batches of a mirror's Fetch answers into envelopes, `unwrap` opens the envelopes of its Produce requests.
`claims` keeps batches here and gives the mirror claim checks for them. `files` store state over restarts.

The `interlock` permits envelopes only for a mirror that is proven to produce through this pair. `paths` pairs the
listeners, `cluster_pair` refuses a cluster that is paired with itself. `monitor` measures lag and gaps, and `leaders`
asks brokers for Shoal itself. `annotations` are for the capture index,
`counters` and `copy_events` for the log.
"""
