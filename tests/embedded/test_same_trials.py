"""`driftline compare DIR --with DIR`: the first trial that differs between two studies."""

from pathlib import Path

from driftline.errors import InvalidSpec
from driftline.wire.driver_messages import NewTrial
from service.store.store import Store
from tests.command_line import printed, refusal
from tests.driver.store_client import quadratic


def folder(place: Path, *rates: float) -> Path:
    """An output folder whose study has tried these rates."""
    place.mkdir()
    store = Store(place / "driftline.db")
    study = quadratic()
    study_id = store.studies.create(study.to_json(), study.fingerprint()).id
    tried = [
        NewTrial(label="long", phase="search", number=n, seed=0, configuration=n, hyperparameters={"client_lr": rate})
        for n, rate in enumerate(rates)
    ]
    store.trials.create(study_id, store.leases.acquire(study_id, "host/1").attempt, tried)
    store.close()
    return place


def test_the_first_trial_that_differs_is_printed(tmp_path: Path) -> None:
    one, same, other = (folder(tmp_path / name, 0.1, last) for name, last in (("a", 0.2), ("b", 0.2), ("c", 0.3)))
    assert printed("compare", str(one), "--with", str(same)) == "the same 2 trials\n"
    assert printed("compare", str(one), "--with", str(other)) == "long.s00001: client_lr is 0.2 and 0.3\n"
    found = printed("compare", str(one), "--with", str(other), "--json")
    assert found == '{"first_difference": "long.s00001: client_lr is 0.2 and 0.3", "trials": 2}\n'


def test_labels_or_another_study_must_be_given(tmp_path: Path) -> None:
    place = str(folder(tmp_path / "one", 0.1))
    for words in ([], ["long"], ["long", "short", "--with", place]):
        error = refusal("compare", place, *words)
        assert isinstance(error, InvalidSpec)
        assert "give two labels of the study, or another study with --with" in error.message
