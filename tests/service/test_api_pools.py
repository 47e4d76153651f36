"""`resources` of studies that are submitted, against the pools and their room that the scheduler stored."""

from pathlib import Path

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Resources
from service.launchers.local.launcher import LocalLauncher
from service.launchers.worker_pools import FACT, Room, WorkerPools

from .api_setup import Service, problem
from .conftest import SPEC

POOLS = WorkerPools(gpus={"default": 1, "a100": 4, "cpu": 0}, projects={"other": ("cpu",)})
REFUSED = "resources.pool: must be one of default, a100, cpu, got h100"


@pytest.fixture
def pooled(service: Service) -> Service:
    service.store.facts.put(FACT, POOLS.model_dump_json())
    return service


def with_pool(pool: str, **resources: object) -> dict[str, object]:
    return {**SPEC, "resources": {"pool": pool, **resources}}


def test_an_unknown_pool_is_refused_with_those_there_are(pooled: Service) -> None:
    with pooled.http("writer") as http:
        for parameters in ({}, {"validate_only": True}):
            answer = http.post("/v1/studies", json=with_pool("h100"), params=parameters)
            assert problem(answer, 422, "invalid-spec")["detail"] == REFUSED
        assert http.post("/v1/studies", json=with_pool("a100")).status_code == 201
    assert len(pooled.store.studies.find()) == 1


def test_pools_of_a_project_and_of_studies_without_gpus(pooled: Service) -> None:
    with pooled.client("stranger") as client:
        with pytest.raises(InvalidSpec, match="must be one of cpu, got default"):
            client.create(with_pool("default"))
        client.create(with_pool("cpu", gpu=0))
    with pooled.client("writer") as client, pytest.raises(InvalidSpec, match="a pool without GPUs"):
        client.create(with_pool("a100", gpu=0))


def test_a_study_is_not_extended_in_a_pool_that_is_gone(pooled: Service) -> None:
    with pooled.client("writer") as client:
        study = client.create(with_pool("a100")).id
        pooled.store.facts.put(FACT, WorkerPools(gpus={"default": 1, "cpu": 0}).model_dump_json())
        with pytest.raises(InvalidSpec, match="must be one of default, cpu, got a100"):
            client.extend(study, trials_per_method=8)


def test_a_pool_is_ignored_with_a_remark_where_there_are_none(service: Service) -> None:
    def remarks() -> list[str]:
        with service.http("writer") as http:
            answer = http.post("/v1/studies", json=with_pool("a100"), params={"validate_only": True})
            assert answer.status_code == 200
            return answer.json()["remarks"]

    assert remarks() == []  # no scheduler has said which pools there are
    service.store.facts.put(FACT, WorkerPools().model_dump_json())
    assert remarks() == ["resources.pool: ignored, this service has no pools of workers"]


def test_the_room_is_that_of_the_pool_where_a_study_would_run(pooled: Service) -> None:
    rooms = {"default": Room(gpus=1), "a100": Room(gpus=4)}
    pooled.store.facts.put(FACT, POOLS.model_copy(update={"rooms": rooms}).model_dump_json())
    with pooled.client("writer") as client:
        with pytest.raises(InvalidSpec, match=r"resources\.gpu: must be at most 1, what a worker has, got 2"):
            client.create({**SPEC, "resources": {"gpu": 2}})
        client.create(with_pool("a100", gpu=2))
        client.create(with_pool("cpu", gpu=0, cpus=99))  # of which nothing is known


def test_the_room_of_a_launcher_on_this_machine_is_the_machine_and_one_node(tmp_path: Path) -> None:
    pools = LocalLauncher("http://127.0.0.1:1", "", tmp_path, num_cpus=4).pools
    pools.require("default", Resources(cpus=4, gpu=0))
    for resources, said in (
        (Resources(gpu=0, nodes=2), r"resources\.nodes: must be at most 1, the most workers of a study here, got 2"),
        (Resources(gpu=99), r"resources\.gpu: must be at most \d, what the machine of this service has, got 99"),
        (Resources(gpu=0, cpus=5), r"resources\.cpus: must be at most 4, what the machine of this service has, got 5"),
    ):
        with pytest.raises(InvalidSpec, match=said):
            pools.require("default", resources)
    joined = LocalLauncher("http://127.0.0.1:1", "", tmp_path, num_cpus=4, address="auto")
    joined.pools.require("default", Resources(gpu=99, nodes=2))
