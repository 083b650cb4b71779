"""What is played through Shoal with real clusters: the harness of brokers and mirrors, and what uses it."""
