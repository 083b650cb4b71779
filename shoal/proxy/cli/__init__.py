"""The commands `shoal mirror`, `run`, `check` and `probe`.

    main -> arguments -> mirror_flags | config -> run -> server
                                                   |
                                                   +-- report (traffic), stall_watch (the event loop hangs)

`mm2_lines` prints what a MirrorMaker 2 configuration needs, `doctor` checks one (`shoal check`). `probe` tests whether
brokers take several batches per partition. `exit_codes` turns an error into an exit code and a message. `check` and
`--help` import neither trio nor the proxy.
"""
