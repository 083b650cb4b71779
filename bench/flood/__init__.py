"""`make flood`: hostile connections beside working clients.

__main__      a broker, Shoal, three phases: quiet, the attacker against a port that drops, the attackers against Shoal
clients       50 producers, half of them over TLS: the latency of each record, and which records were acknowledged
attack.c      the attacker: thousands of connections
tls_attack.c  few connections, which try to renegotiate, or update their keys without end
"""
