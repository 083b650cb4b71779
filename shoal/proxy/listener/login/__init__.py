"""Clients that log in at Shoal (`[listener.sasl]`), not at the broker.

    client ── requests ──> login ──> dialogue ──> users_file   PLAIN, SCRAM
                             │                └─> bearer ──> key_set   OAUTHBEARER
                             └─> versions: the broker's ApiVersions, which clients ask for before they log in

`login` reads the requests of a new connection until the client has logged in. Only then does the connection get a
broker, with the credentials that its principal is mapped to: a client that cannot log in never reaches a broker.
On the open connection, its routes let the client log in again (KIP-368). `dialogue` is one login, over either.
`requests` reads the frames of a client that is not to be trusted yet, one by one. `watched_file` reads users and keys
again when they change.

A principal is Kafka's without "User:": a SASL user's name, a token's claim, or the subject of a certificate.
"""
