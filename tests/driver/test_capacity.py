"""What a driver asks for on a cluster whose nodes come only when there is work for them; no Ray is started."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from service.driver.command_line import _parser
from service.driver.lifecycle import NODES_S, DriverOptions, run_driver
from service.driver.ray import cluster, tune
from service.driver.ray.capacity import Node
from service.driver.ray.cluster import Cluster
from tests.driver.store_client import StoreClient, quadratic

HEAD, GPU = Node(0), Node(4, 1)


class Growing(Cluster):
    """A cluster of a head alone, which brings a node for the first thing that is asked of it.

    A node with a GPU, unless it has plain ones besides and is asked for cores alone, as Ray's autoscaler does it.
    """

    def __init__(self, folder: Path, plain: Node | None) -> None:
        super().__init__(folder, own=False)
        self.there, self.plain, self.wishes = [HEAD], plain, []

    def nodes(self) -> list[Node]:
        return self.there

    def wish(self, packs: int, cpus: float, gpus: float) -> None:
        self.wishes.append((packs, cpus, gpus))
        if self.there == [HEAD]:
            self.there = [HEAD, GPU if gpus or self.plain is None else self.plain]


def drive(
    client: StoreClient,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    gpu: Any,
    worker_gpus: float,
    plain: Node | None = None,
) -> tuple[Growing, Any]:
    """The cluster, and the search that was begun on it."""
    growing = Growing(folder, plain)
    begun = []

    monkeypatch.setattr(cluster, "connect", lambda *_, **__: contextlib.nullcontext(growing))
    monkeypatch.setattr(tune, "fit", lambda search, watch, _: begun.append(search))
    study = quadratic(resources={"gpu": gpu})
    study_id = client.submit(study)
    options = DriverOptions(folder, nodes_s=0.0, worker_gpus=worker_gpus)
    run_driver(client, study_id, threading.Event(), options)
    return growing, begun[0]


@pytest.mark.parametrize(
    ("gpu", "worker_gpus", "wished", "taken"),
    [
        ("auto", 2, 1.0, 1.0),
        ("auto", 0, 0.0, 0.0),  # nothing is known: the cores that come first are taken, as before
        (0, 2, 0.0, 0.0),
        (0.5, 2, 0.5, 0.5),
    ],
)
def test_auto_waits_for_the_gpu_that_is_promised(
    client: StoreClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: Any,
    worker_gpus: float,
    wished: float,
    taken: float,
) -> None:
    growing, search = drive(client, tmp_path, monkeypatch, gpu=gpu, worker_gpus=worker_gpus, plain=Node(4))
    assert growing.wishes[0] == (1, 1.0, wished)
    assert search._gpus == taken


def test_auto_still_takes_a_gpu_that_shows_by_itself(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, search = drive(client, tmp_path, monkeypatch, gpu="auto", worker_gpus=0)
    assert search._gpus == 1.0


def test_a_driver_reads_it_from_its_arguments() -> None:
    words = ["--study", "s", "--folder", "f"]
    asked = _parser().parse_args([*words, "--worker-gpus", "2", "--nodes-seconds", "1200"])
    assert (asked.worker_gpus, asked.nodes_seconds) == (2.0, 1200.0)
    asked = _parser().parse_args(words)
    assert (asked.worker_gpus, asked.nodes_seconds) == (0.0, NODES_S)
