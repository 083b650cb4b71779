"""Shoal logs in at the brokers, so that clients need no credentials of the cluster.

    settings ── make ──> BrokerLogin ── one for each identity of a cluster
                            │   backoff: a refused identity is not tried again by every client connection
                            v
                         Identity ── passwords   PLAIN, SCRAM: read for each login
                                  ── bearer      OAUTHBEARER: a file, or token_cache ── token_command
                                  │                                                  ── token_endpoint
                                  │              AWS_MSK_IAM:                        ── msk
                                  ── kerberos    GSSAPI

`net/upstream.py` calls `BrokerLogin.login` for each new connection to a broker. The `BrokerSession` that it returns
says when the connection has to log in again (KIP-368), and does so over an `exchange` of that connection.

No error here has a password or a token in it. Errors have no changing parts either, such as seconds: logs are limited
by their text.
"""
