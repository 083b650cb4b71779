"""Joining the produce requests of many clients into few (design section 2): everything about it but the sockets.

joinable   may this request be joined, and with which others; its batches
sequences  could this batch be a retry?
joiner     THE policy: when does a joined request leave, and what stands in it
request    a joined request as bytes
answer     the broker's answer, taken apart again for those who asked
"""
