"""The traffic index (`*.kxb`): the fields of a row, the blocks of a file, and how traffic becomes rows.

    bytes of a connection -> tap -> stream (frames) -> requests | answers -> record_sets -> rows -> blocks

    file   := block block ...          the first one identifies the writer
    block  := magic, type, length, CRC-32C, payload
    rows   := fixed-width rows (`columns`), one per record batch in each direction, and one per request without records
    names  := the strings that rows refer to by number

`pending` keeps a request until its answer. A `template` reads requests that are like earlier ones (`produce_template`,
`request_template`), `sizes` reads uncompressed sizes in place. A file is append-only. Its end may be torn and its
middle damaged: a reader loses the damaged block, and reports it.
"""
