"""`shoal replay`: a scenario (a file in `cases`), or captured traffic, through a Shoal of its own on real brokers.

    case -> runner -> stage (topics, Shoal, mirror, brokers) -> facts -> verdicts
    index/ | frames/ -> trace -> sending -> brokers -> ledger (was everything appended once?)

`cli` and `capture_cli` are the command line, `clock` is scenario time, `figures` the file with the results.
"""
