"""Security of real brokers and of the clients that connect to them.

    certificates   authorities and what they issue: good, expired, not yet valid, for another name, with a locked key
    tokens         signed OAUTHBEARER tokens, and an HTTP server that hands them out
    kdc            a Kerberos KDC
    listeners      which secured listeners a broker has, and its properties for them
    clients        how a client connects: settings for librdkafka, kafka-python, Java and kcat

Nothing here keeps a secret: passwords and keys live for one test, in its directory.
"""
