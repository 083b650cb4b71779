"""Sockets to clients and brokers. Nothing here knows a Kafka message.

    connect         every address of a broker in turn, each within a timeout
    transport       a socket as the pumps use it, and the one receive buffer of the process
    fast_lane       steps a pump inside trio's own wait, so that small requests need no task switch
    broker_client   a connection of Shoal's own to a broker: one request, one answer

`connect` and the listeners are the only places that make sockets.
"""
