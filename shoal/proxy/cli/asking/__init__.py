"""What commands ask of brokers: `survey` the leaders of all partitions, `cluster_groups` the coordinators of groups."""
