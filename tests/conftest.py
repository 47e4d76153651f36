"""What all tests share: properties are judged by what holds, never by how long it took on a busy machine."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "driftline",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("driftline")
