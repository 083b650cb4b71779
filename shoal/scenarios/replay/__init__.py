"""`shoal replay`: a scenario (a file in `cases`), or captured traffic, through a new Shoal to real brokers.

    case -> runner -> stage (topics, Shoal, mirror, brokers) -> facts -> report
    index/ | frames/ -> trace -> sending -> brokers -> ledger (was everything appended once?)

`capture_cli` replays captures for the command line (`../replay_command.py`), `clock` is scenario time, `report` prints
and writes the results.
"""
