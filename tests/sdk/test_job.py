"""Jobs of a service elsewhere."""

import threading
from pathlib import Path

import pytest

from driftline import Client, Study
from driftline.errors import Conflict, InvalidSpec, NotFound
from service.server.compose import Service
from tests.waiting import until


def test_a_job_of_a_service(service: Service, study_file: Path, gate: threading.Event) -> None:
    gate.clear()
    with Client() as client:
        assert not client.local
        job = client.submit(Study.from_yaml(study_file))
        until(lambda: job.state == "RUNNING")
        job.pause()
        gate.set()
        until(lambda: job.state == "PAUSED")
        job.resume().wait(timeout_s=120)
        states = [event.data["state"] for event in job.events() if event.kind == "state"]
        assert states[0] == "PENDING"
        assert states[-1] == "SUCCEEDED"
        assert {"RUNNING", "PAUSING", "PAUSED"} <= set(states)
        last = [event.id for event in job.events()][-1]
        assert list(job.events(after=last)) == []
        assert list(job.logs()) == list(job.logs(follow=True))
        by_bytes = job.frontier(cost="bytes")
        assert by_bytes.data["methods"]["fedavg"]["frontier"] != job.frontier().data["methods"]["fedavg"]["frontier"]
        with pytest.raises(InvalidSpec, match="train_loss"):
            job.frontier(quality="train_los")
        with pytest.raises(Conflict, match="nothing to retry"):
            job.retry()
        with pytest.raises(NotFound, match='has no trial "x"'):
            job.retry("x")
        job.extend(trials_per_method=4).wait(timeout_s=120)
        assert len(job.trials(phase="search")) == 8
        assert client.job(job.id).id == client.job("small").id == job.id
        with pytest.raises(NotFound, match="have: small"):
            client.job("0" * 26)
        assert "succeeded" in job._repr_html_()


def test_the_same_key_makes_one_study(service: Service, study_file: Path, gate: threading.Event) -> None:
    study = Study.from_yaml(study_file)
    with Client() as client:
        assert client.submit(study, key="mine").id == client.submit(study, key="mine").id
        assert client.submit(study).id != client.submit(study).id
        assert [record.name for record in client.records()] == ["small"] * 3
