"""The two directions of a connection, chunk by chunk.

    client -> request_pump  -> broker
    client <- response_pump <- broker

`pump` is the base of both: it reads chunks, finds frames and sends.
"""
