"""Records the traffic in two independent ways. Traffic never waits for either.

    broker's socket -> tapped -> backlog -> taps of protocol.capture.index -> index -> index_files (*.kxb)
    client's socket -> frame_tap -> frames -> a thread -> frame_files (*.pcapng)

The index has one row per record batch and is cheap. Frames are whole requests and answers, and are written only on
request. `annotations` are what a listener's path adds to the index: which requests Shoal joined, unwrapped or
sent itself.
"""
