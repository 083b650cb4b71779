"""`shoal capture`: captured files as tables, to print and for `shoal spark`. Never imported by the proxy.

    file -> index (pieces of rows, names) -> selection (which rows) -> decode (which columns) -> Arrow table

`files` finds capture files, `scan` reads blocks of a file that may grow or be damaged, `survey` describes a file.
`schema` names every column once. `frames/` does the same for raw captures. `cli` has the commands: `cat`, `compact`,
and those of `survey`. Only `rows`, `selection`, `decode` and their users need numpy and pyarrow (the extra `capture`).
"""
