"""Jobs of a service elsewhere."""

import threading
from pathlib import Path

import pytest

from driftline import Client, Study
from driftline.errors import Conflict, InvalidSpec, NotFound
from service.server.compose import Service
from tests.waiting import until
from trainers.run import run


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
        assert job.best("fedavg") == job.frontier().best("fedavg")
        best = job.best("fedavg", cost=10)
        assert best.rounds <= 10
        again = next(one for one in job.trials("fedavg", "confirmation") if one.configuration == best.configuration)
        curve = job.curves(again.id)[again.id]
        expected = curve["excess_loss"][curve["round"].index(best.rounds)]
        *_, line = run(best.trial(Study.from_yaml(study_file), seed=again.seed))
        assert (line["round"], line["excess_loss"]) == (best.rounds, pytest.approx(expected, rel=1e-9))
        searched = job.trials(phase="search").to_frame().groupby("label")["quality"].min()  # an excess loss falls
        assert job.best_in_search() == searched.to_dict()
        curves = job.curves().to_frame()
        assert set(curves["trial"]) == {trial.id for trial in job.trials()}
        assert curves.groupby("trial")["round"].max().eq(20).all()
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


def test_the_first_trial_that_differs_between_two_jobs(
    service: Service, study_file: Path, gate: threading.Event
) -> None:
    study = Study.from_yaml(study_file)
    with Client() as client:
        one = client.submit(study).wait(timeout_s=120)
        assert one.first_difference(client.job(one.id)) is None
        both = one.frontier(client.job(one.id), cost="bytes")
        assert both.labels == ("1-small/fedavg", "1-small/fedsgd", "2-small/fedavg", "2-small/fedsgd")
        assert both.compare("1-small/fedavg", "2-small/fedavg")["claims"]["configurations"]["difference"]["mean"] == 0
        gate.clear()
        other = client.submit(study)
        assert str(one.first_difference(other)).endswith("only the first study has it")
        assert str(other.first_difference(one)).endswith("only the second study has it")
        other.cancel()
