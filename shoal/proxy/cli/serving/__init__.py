"""The process that serves: `run` with the settings of a file or of flags, or as a `worker` of several.

`hang_up` is for the time before `run`; `report` and `stall_watch` are tasks beside the server.
"""
