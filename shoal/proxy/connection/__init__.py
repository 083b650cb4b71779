"""One client connection and its own connection to a broker.

    client -> request_pump  -> route of the API key (routes) -> broker
    client <- response_pump <- entry of the request (in_flight) <- broker

`pump` is the base of both directions: it reads chunks, tells frames apart and sends. A request without a route
passes as it is. A route may edit a request, hold it for a handler, or ask that its answer is edited or held; what is
to be done with an answer waits in `in_flight`, in the order of the requests. `topic_names` asks the broker for names
of topic ids over this connection. `watchdog` ends connections that make no progress. `connection` owns the two
sockets, the two pumps and the handler.
"""
