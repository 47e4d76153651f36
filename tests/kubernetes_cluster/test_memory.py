"""The memory that the service's pods take while nothing is asked of them."""

import pytest

from tests.kubernetes_cluster.release import CORE, NAMESPACE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
REPLICAS = {"api": 2, "scheduler": 2, "mlflow": 1, "postgresql": 1}
"""The chart's defaults."""

# A process that checks studies ends after ten minutes without one: later than this test runs.
SCRIPT = """
for process in /proc/[0-9]*; do
    grep -q service.api.check_process $process/cmdline || grep ^Pss: $process/smaps_rollup
done
true
"""


def test_all_parts_together_take_less_than_800_mib(deployed):
    taken = {}
    for part in REPLICAS:
        pods = deployed.rest.items(f"{CORE}/pods?labelSelector=app.kubernetes.io/component%3D{part}")
        name = next(pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running")
        lines = deployed.node.run("kubectl", "-n", NAMESPACE, "exec", name, "-c", part, "--", "sh", "-c", SCRIPT)
        taken[part] = sum(int(line.split()[1]) for line in lines.splitlines()) / 1024
    print({part: f"{mib:.0f} MiB" for part, mib in taken.items()})
    assert all(mib > 20 for mib in taken.values()), taken  # something was read
    assert sum(taken[part] * count for part, count in REPLICAS.items()) < 800, taken
