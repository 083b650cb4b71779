"""A Shoal from its start to its end.

    STARTING ──> SERVING ── SIGTERM ──> WAITING_FOR_CLIENTS ── gone, or too late ──> DRAINING ──> ENDED
                                        (drain = "until-clients-gone")

`server` puts all parts together and runs them, and `serve` obeys signals. `state` has the states and what changes them,
for `/readyz` too. `clients` knows which clients are still there, and `waiting` serves them until they have gone.
`supervisor` notifies systemd. `reloads` and `control` ask for a new configuration, `reload` applies it.

`tenure` is what a process has while it is the Shoal of its state directory (`state_directory`: a lock and a socket).
Another one may take over (`--takeover`): `giving` is the side that runs, `taking` the new one, `channel` has their
messages.
"""
