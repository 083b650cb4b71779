"""One client connection and its own connection to a broker.

    client -> request_pump  -> route of the API key (routes) -> broker
    client <- response_pump <- pending answer of the request (pending) <- broker

`pumps` are the two directions. A request without a route passes unchanged. A route may edit a request, hold it for a
handler, or have its answer edited or held; `pending` has what happens to each answer, in the order of the requests.
`topic_names` asks the broker for names of topic ids over this connection, and `keep_alive` keeps it open while it is
unused. `timeouts` ends connections that make no progress. `connection` owns the two sockets and the two pumps, and is
what routes and handlers use; `life` runs it from the client's first bytes to its end; `state` is its life cycle, a
table of transitions. `broker_requests` is what handlers send to the broker.
`client_session` follows the client's login, and `broker_session` repeats Shoal's own login at the broker in time.
`pace` limits bytes per second. `clients` is the table of all clients and what they use. `listener_api` has the
interfaces to the listener: `ListenerApi` and `Path`.
"""
