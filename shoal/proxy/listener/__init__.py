"""One listener: the ports where clients connect, and the table of routes that every path begins with.

    listener    accepts clients on the bootstrap port and on one port per broker, and gives each client a `Connection`
    plain       routes that only replace brokers' addresses; every feature adds its own routes to these

`server` starts the listeners. The features (`shallow`, `coalesce`, `legacy`) plug their `Path` into a listener.
"""
