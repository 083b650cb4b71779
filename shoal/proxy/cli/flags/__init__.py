"""The flags of every command, and the settings that they become.

    argv -> arguments -> the namespace of a command -> mirror -> Settings     (`shoal mirror`)
                                                    -> probe, cluster         (`shoal probe`, `shoal replay`)

A flag sets one key of the configuration, which gives it its type, its choices and its default (`setting`).
`security` adds the flags of TLS and SASL, with a prefix for each side of a mirror. `cluster` has those of one cluster.
`help_texts` has what `--help` prints around the flags. Nothing here opens a socket.
"""
