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

# Ray gives its workers a niceness of 15: beside whatever else a busy machine does, they would starve for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")
