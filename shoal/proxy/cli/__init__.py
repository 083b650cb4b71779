"""The commands of `shoal` that need no scenarios; `shoal/cli.py` lists all.

    main (mirror, run, check, probe) -> flags | config -> Settings -> serving -> lifecycle.serve

The others have a file or a folder each: `observe` (status, top, clients), `groups`, `promote`, `translate`, `gaps`,
`reload`, `users`. `mm2_lines` and `mm2_java` print what MirrorMaker 2 needs, `doctor` is `shoal check`, `asking`
asks brokers. `exit_codes` turns an error into an exit code and a message. `check` and `--help` import
no trio.
"""
