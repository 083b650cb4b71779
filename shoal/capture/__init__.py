"""Tools for what was captured: index files become tables, for people (`shoal capture`) and for the analyses (`shoal spark`).

    file -> index (pieces of rows, names) -> selection (which rows) -> decode (which columns) -> Arrow table

The format itself is `protocol.capture`'s; this package reads files, and is never imported by the proxy. What a column is called and
what it holds is said once, in `schema`. numpy and pyarrow are the extra `capture`: only `rows`, `names`, `selection`, `decode` and
what is above them need these.
"""
