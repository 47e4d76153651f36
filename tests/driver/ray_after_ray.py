"""One process, several Rays, each under other settings: Driftline's own ones and those of the program around it."""

import os
import sys

import ray

from service.driver.ray import cluster, mutex
from tests.driver import small_ray


class _Named:
    def number(self) -> int:
        return 7


def own() -> None:
    """Starts Driftline's own Ray with a random token: its actors answer, and no node exposes metrics."""
    with cluster.connect("study", None, lambda line: None, num_cpus=1), mutex.alone("study", lambda line: None):
        assert ray.get(ray.remote(num_cpus=0)(_Named).remote().number.remote(), timeout=60) == 7
        assert [node["MetricsExportPort"] for node in ray.nodes()] == [-1]


def around(folder: str, **variables: str) -> None:
    """A Ray that the program around Driftline starts for itself."""
    os.environ.update(variables)
    small_ray.start(folder, 1)
    actor = ray.remote(num_cpus=0)(_Named).options(name="named").remote()
    assert ray.get(actor.number.remote(), timeout=60) == 7
    ray.shutdown()


if __name__ == "__main__":
    os.environ.pop("RAY_AUTH_MODE", None)
    around(sys.argv[1], RAY_AUTH_MODE="disabled")
    del os.environ["RAY_AUTH_MODE"]
    own()
    around(sys.argv[1])  # Ray makes a token of its own, in the home folder
    own()
    print("all answered")
