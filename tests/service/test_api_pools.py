"""`resources.pool` of studies that are submitted, against the pools that the scheduler stored."""

import pytest

from driftline.errors import InvalidSpec
from service.launchers.worker_pools import FACT, WorkerPools

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
            said: list[str] = answer.json()["remarks"]
            return said

    assert remarks() == []  # no scheduler has said which pools there are
    service.store.facts.put(FACT, WorkerPools().model_dump_json())
    assert remarks() == ["resources.pool: ignored, this service has no pools of workers"]
