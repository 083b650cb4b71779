"""One listener: the ports where clients connect, and the table of routes that every path begins with.

    broker_ports    a bootstrap port, a port for each broker, and the addresses that clients get for them
    reception       an accepted socket becomes a client: who is let in (admission, access), greeting (PROXY, TLS, names)
    syn_filter      the kernel drops the attempts of addresses that are refused all the time
    login           clients log in at Shoal, before they get a broker
    listener        gives each client a `Connection`, and counts it until it has ended
    plain           routes that only replace brokers' addresses; every feature adds its own routes to these

`lifecycle.server` starts the listeners. The features (`shallow`, `coalesce`, `legacy`) plug their `Path` into a
listener.
"""
