"""One upstream cluster, and the ports of its brokers.

    cluster       addresses of the brokers, names of topic ids
    brokers       Shoal's own questions to the brokers
    ports         which broker has which port, stable over restarts
    bound_port    a bound port: clients that connect to it go to this broker
    multi_batch   which brokers are proven to take several batches per partition
    state_files   how files in a state directory are written, so that nothing of another owner is lost

Clusters are shared by all listeners that name them; ports belong to one listener.
"""
