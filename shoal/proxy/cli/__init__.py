"""The commands `shoal mirror`, `run`, `check`, `probe` and `users`.

    main -> flags | config -> Settings -> run -> server
                                           |
                                           +-- report (traffic), stall_watch (the event loop hangs)

`mm2_lines` prints what a MirrorMaker 2 configuration needs, `doctor` checks one (`shoal check`). `probe` tests whether
brokers take several batches per partition, and `users` keeps the file of those that log in at Shoal. `exit_codes` turns
an error into an exit code and a message. `check` and `--help` import neither trio nor the proxy.
"""
