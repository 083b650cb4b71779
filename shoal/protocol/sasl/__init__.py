"""SASL: how a client proves who it is, as frames and tokens.

    client ── tokens ──┐                             scram, oauth, kerberos: the tokens of one mechanism
                       ├── login: the requests of a new connection, or of one that logs in again
    broker ── answers ─┘

An *exchange* is a generator: it yields the client's tokens and is sent the server's. `client` has the exchanges that
need a name and a password only. A login is a generator, too: it yields request frames and is sent the answers.

The other side, for clients that log in at Shoal:

    client ── requests ──> answers: reads and answers them ──> server: the state machine of one login ──> users

`users` has the salted hashes of users.

Names and passwords are used unchanged: Kafka does not prepare them either (`ScramFormatter.normalize`).
"""
