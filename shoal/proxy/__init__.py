"""The proxy: sockets, tasks, files and settings around the pure rules of `protocol`.

    cli -> config -> lifecycle -> listener -> connection -> Path of the listener
                                                |               plain | shallow | coalesce | legacy
                                              cluster
                                                 |
                                net (the socket to the broker, seen by capture)

`lifecycle.server` starts one listener for each `[[listener]]`. A listener accepts clients and gives each a
`Connection`: one task that moves requests to the broker, one that moves answers back. The listener's `Path` is a table
of routes by API key; a request without a route passes undecoded. `listener.plain` has the routes that every listener
needs. The features `shallow`, `coalesce` and `legacy` import nothing of each other, and the connection knows none of
them.

`net.tls` encrypts on both sides. `listener.login` lets clients log in at Shoal; `net.auth` logs Shoal in at brokers.

With `workers` above 1, `workers` has several of these servers in processes of their own, and one supervisor.

`statistics`, `config.problems`, `events.logs` and `config.reread` are used everywhere.
"""
