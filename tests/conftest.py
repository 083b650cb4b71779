"""Property tests draw the same examples every time: exploring is `make fuzz`'s part. A loaded machine fails none of them."""

from hypothesis import HealthCheck, settings

settings.register_profile("shoal", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")
