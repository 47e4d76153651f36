"""What nodes have room for, and the folders of a private Ray."""

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from driftline.errors import Conflict, InvalidSpec, Unavailable
from service.driver.ray import cluster, ray_variables
from service.driver.ray.capacity import Node, require, slots
from service.driver.ray.cluster import Cluster
from service.driver.ray.environment import environment

NODES = [Node(16), Node(8, 1), Node(8, 1)]


@pytest.mark.parametrize(
    ("cpus", "gpus", "expected"), [(1, 0, 32), (4, 0, 8), (1, 1, 2), (1, 0.5, 4), (1, 0.3, 6), (6, 0.25, 2), (1, 2, 0)]
)
def test_slots(cpus: float, gpus: float, expected: int) -> None:
    assert slots(NODES, cpus, gpus) == expected


def test_a_pack_that_fits_on_no_node_is_refused_with_what_nodes_have() -> None:
    with pytest.raises(InvalidSpec) as caught:
        require(NODES, 1, 3)
    have = "the nodes have 16 CPU; 2 x 8 CPU and 1 GPU: ask for less"
    assert str(caught.value) == f"resources.gpu: a pack needs 1 CPU and 3 GPU on one node, {have}"
    with pytest.raises(InvalidSpec, match=r"resources.cpus: a pack needs 20 CPU on one node"):
        require(NODES, 20, 0)
    require(NODES, 16, 0)
    have = "the nodes have 16 CPU; 2 x 8 CPU and 1 GPU: ask for less"
    with pytest.raises(InvalidSpec, match=f"resources.nodes: a pack needs 1 CPU and 1 GPU on each of 3 nodes, {have}"):
        require(NODES, 1, 1, 3)


@pytest.mark.parametrize(
    ("rooms", "span", "expected"),
    [
        ([4, 1, 1], 2, 2),
        ([4, 4], 2, 4),
        ([5], 2, 0),
        ([1, 1, 1], 2, 1),
        ([3, 2, 1], 3, 1),
        ([10**6, 0], 2, 0),
        ([], 2, 0),
    ],
)
def test_packs_that_span_nodes_take_each_node_once(rooms: list[int], span: int, expected: int) -> None:
    assert slots([Node(room) for room in rooms], 1, 0, span) == expected


def seen(*nodes: Node) -> Cluster:
    return Cluster(Path("unused"), own=False, _seen=(float("inf"), list(nodes)))


def test_auto_takes_a_whole_gpu_where_there_is_one() -> None:
    assert seen(*NODES).gpus("auto") == 1.0
    assert seen(Node(4)).gpus("auto") == 0.0
    assert seen(Node(4)).gpus(0.5) == 0.5


def test_a_ray_of_our_own_without_its_node_is_broken_and_a_joined_one_may_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = SimpleNamespace(nodes=lambda: [{"Alive": False, "Resources": {}}])
    monkeypatch.setattr(cluster, "_ray", lambda: dead)
    with pytest.raises(Unavailable, match="its raylet has ended"):
        Cluster(Path("unused"), own=True).slots(1, 0)
    assert Cluster(Path("unused"), own=False).slots(1, 0) == 0


def test_a_joined_cluster_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Cluster(Path("unused"), own=False)
    answers = iter([[Node(0)], [Node(0)], [Node(2)]])
    monkeypatch.setattr(Cluster, "nodes", lambda self: next(answers, [Node(2)]))
    lines: list[str] = []

    class Hurried(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return False

    growing.wait_for(1, 0, 60.0, lines.append, Hurried())
    assert lines == ["waiting up to 60 s for a node with 1 CPU free for packs ..."]


def test_the_folder_is_short_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with cluster._folder() as own:
        assert len(str(own)) <= 32
    assert not own.exists()


def test_a_cluster_without_a_node_for_packs_says_so_once_and_when_there_is_one_again() -> None:
    lines: list[str] = []
    found = seen(Node(2))
    room = []
    for nodes in ([Node(2)], [Node(0)], [Node(0)], [], [Node(4)], [Node(4)], []):
        found._seen = (float("inf"), [Node(0), *nodes])
        room.append(found.room(1, 0, lines.append))
    assert room == [2, 0, 0, 0, 4, 4, 0]
    waits = "no node has room for a pack, 1 CPU: waiting for one"
    assert lines == [waits, "a node has room for a pack, 1 CPU", waits]


@pytest.mark.parametrize("address", [None, "local"])
def test_without_a_cluster_ray_starts_here(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_connected", lambda: False)
    monkeypatch.setattr(cluster, "private", lambda *_: contextlib.nullcontext(tmp_path))
    with cluster.connect("study", address, print) as joined:
        assert (joined.own, joined.folder) == (True, tmp_path)


def test_a_process_drives_one_study_at_a_time() -> None:
    with (
        cluster._busy,
        pytest.raises(Conflict, match="drives another study already"),
        cluster.connect("b", None, print),
    ):
        pass


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLINE_A", "before")
    monkeypatch.delenv("DRIFTLINE_B", raising=False)
    with environment({"DRIFTLINE_A": "within", "DRIFTLINE_B": "within"}):
        assert (os.environ["DRIFTLINE_A"], os.environ["DRIFTLINE_B"]) == ("within", "within")
    assert os.environ["DRIFTLINE_A"] == "before"
    assert "DRIFTLINE_B" not in os.environ


def test_a_private_ray_is_reached_with_a_token_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    private = ray_variables.variables(private=True)
    assert private["RAY_AUTH_MODE"] == "token"
    assert len(private["RAY_AUTH_TOKEN"]) == 64
    assert "RAY_AUTH_MODE" not in ray_variables.variables(private=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "RAY_AUTH_TOKEN" not in ray_variables.variables(private=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, float]]]:
    """What Ray's autoscaler is asked for."""
    requests: list[list[dict[str, float]]] = []
    sdk = pytest.importorskip("ray.autoscaler.sdk")
    monkeypatch.setattr(sdk, "request_resources", lambda bundles: requests.append(bundles))
    return requests


def test_the_autoscaler_hears_for_how_many_packs_there_is_work(asked: list[list[dict[str, float]]]) -> None:
    cluster = seen(Node(2, 1))
    for packs in (3, 3, 1):
        cluster.wish(packs, 1.0, 0.5)
    assert asked == [[{"CPU": 1.0, "GPU": 0.5}] * 3, [{"CPU": 1.0, "GPU": 0.5}]]
    Cluster(Path("unused"), own=True).wish(3, 1.0, 0.0)
    assert len(asked) == 2


SMALL, WHOLE = {"CPU": 1.0, "GPU": 0.5}, {"CPU": 2, "GPU": 1}
"""A pack, and a node."""


@pytest.mark.parametrize(
    ("nodes", "most", "span", "wished"),
    [
        ([Node(0)], None, 1, [SMALL]),  # only a head: one node is asked for, whatever it will have room for
        ([Node(0), Node(2, 1), Node(2, 1)], None, 1, [SMALL] * 6),  # one more such node
        ([Node(0), Node(2, 1)], 4, 1, [SMALL] * 8),  # all that may come
        ([Node(0), Node(2, 1)], 1000, 1, [SMALL] * 512),
        ([Node(0)], None, 2, [SMALL]),  # what a node has is not known
        ([Node(0), Node(2, 1)], None, 2, [WHOLE] * 2),
        ([Node(0), Node(2, 1), Node(2, 1)], 8, 2, [WHOLE] * 8),
    ],
)
def test_no_more_is_wished_for_than_the_largest_cluster_holds_and_whole_nodes_if_packs_span_them(
    asked: list[list[dict[str, float]]], nodes: list[Node], most: int | None, span: int, wished: list[dict[str, float]]
) -> None:
    cluster = seen(*nodes)
    cluster.most, cluster.span = most, span
    cluster.wish(10_000, 1.0, 0.5)
    assert asked == [wished]


def test_an_autoscaler_that_cannot_be_told_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sdk = pytest.importorskip("ray.autoscaler.sdk")
    monkeypatch.setattr(sdk, "request_resources", lambda bundles: 1 / 0)
    seen(Node(2)).wish(3, 1.0, 0.0)
    assert "room for 3 packs could not be requested" in caplog.text


@pytest.mark.ray
@pytest.mark.slow
def test_a_process_may_use_several_rays_one_after_the_other() -> None:
    with tempfile.TemporaryDirectory(prefix="dlt", dir="/tmp") as folder:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        done = subprocess.run(
            [sys.executable, "-m", "tests.driver.ray_after_ray", folder],
            env={**variables, "HOME": folder, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all answered"


def test_nothing_is_collected_while_ray_shuts_down(monkeypatch):
    """A reference of Ray's that is dropped after its core has shut down ends the process with exit code 1."""
    seen = []
    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace(shutdown=lambda: seen.append(gc.isenabled())))
    cluster._shut_down()
    assert seen == [False]
    assert gc.isenabled()
