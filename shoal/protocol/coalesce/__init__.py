"""Joining the Produce requests of many clients into few, without sockets.

    request -> joinable -> sequences -> policy -> request (joined) -> broker -> answer -> clients

joinable   may this request be joined, and with which others; its batches
sequences  could this batch be a retry?
policy     the policy: when is a joined request sent, and with which batches
request    a joined request as bytes
answer     the broker's answer, split for its clients
"""
