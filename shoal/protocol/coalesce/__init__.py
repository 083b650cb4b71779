"""Joining the Produce requests of many clients into few, without sockets.

    request -> joinable -> sequences -> policy -> request (joined) -> broker -> answer -> clients

joinable   whether a request may be joined, and with which others; its batches
repeated   the same for a request that is like the one before
sequences  whether a batch may be a retry
policy     when a joined request is sent, and with which batches
request    a joined request as bytes
answer     the broker's answer, split for its clients
"""
