"""Kafka's messages as tables, and the code that is generated from them.

    tables (one field per line, in `language`) -+-> walker: finds the byte ranges named in `captures`
                                                +-> composer: values -> bytes
                                                +-> decomposer: bytes -> values

`api` lists the API keys and their versions; `headers` reads and writes request and response headers; `frames` composes
whole frames.
"""
