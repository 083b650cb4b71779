"""Sockets to clients and brokers. Only `auth` knows Kafka messages: those of a login.

    upstream        a broker of a cluster, over any of its addresses, ready for requests
    auth            Shoal logs in at brokers: mechanisms, tokens, sessions
    connect         TCP to one address
    client          a client that is ready to send requests
    transport       a socket as the pumps use it, and the one receive buffer of the process
    splice          socket to socket without a copy, for the middle of long frames
    tls             certificates and contexts of OpenSSL, for both sides
    web             HTTPS, for tokens and the keys of an issuer
    fast_lane       steps a pump inside trio's own wait, so that small requests need no task switch
    trio_internals  the private names of trio that the lane needs
    broker_client   a connection of Shoal's own to a broker: one request, one answer

`connect` and the listeners are the only places that make sockets.
"""
