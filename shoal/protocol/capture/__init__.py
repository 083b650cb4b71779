"""Recording of the traffic between clients and brokers. Two programs that import nothing of each other:

    index/    one row per record batch (`*.kxb`); always on, cheap
    frames/   whole requests and answers (`*.pcapng`); on request, readable by Wireshark

The proxy may run either, both or none.
"""
