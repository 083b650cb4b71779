"""Several processes that serve the same ports: `workers = N`.

                       signals, shoal reload, takeover, systemd, the admin port
                                          │
    supervisor ── Supervisor: a Server that has the sockets which listen, and accepts at none of them
        │  ▲
        │  └── questions: a socket, a port for a new broker     (links; a worker waits for the answer)
        └───── orders: settings, reload, drain, pages, counters (links; a worker that does not answer is left out)
        │
        ├── worker 1 ── Server: accepts, serves plain listeners and all mirrors
        ├── worker 2 ── Server: accepts, serves plain listeners
        └── ...

One process is one core in Python. A client's connection stays in one worker from its first byte to its last, so the
order of its requests, its transactions and its sequences are as with a single process. What is shared is little:

ports       The supervisor opens every port, and is the only one that gives a broker a port (and writes the state
            file). A worker that learns of a broker asks; the others are notified. All accept from the same queue
            (`net.turns` says whose turn it is): a client of a broker's port that another worker has advertised just now
            waits in the queue until the first worker has the socket, and each worker connects it to the same broker.
            The end of a worker closes none of the ports, and resets none of the clients that wait.
settings    The supervisor reads and checks the file. Workers get values, and their share of the limits
            (`config.shares`). A reload is prepared and applied in the supervisor, then in each worker; if a worker
            cannot use it, all go back to the former settings. A worker that does not answer is ended and begins anew.
mirrors     Worker 1 has the listeners of all pairs, because what both sides of a pair see must come together in one
            process, and its files have one writer. They are bound to the lock of the state directory: each worker has
            its descriptor, so the directory is free when the last of them has ended.
counters    The supervisor asks for the workers' counters and adds them up (`totals`); what an ended worker has counted
            is kept. /status, /clients and /readyz are those of the workers, joined (`documents`).
the end     A worker that ends is started again, at once and then ever later (`Supervisor`). Workers drain when the
            supervisor orders it, and also when it is gone.
takeover    The supervisor gives and takes the sockets, as a single process does. Worker 1 begins when the Shoal before
            has closed the files of its mirrors.

Coalescing joins what comes to one worker: with N workers there are N times as many lanes, and fewer requests to join.
"""
