"""Several namespaces looked at as one: what counts when some of them cannot be seen."""

import pytest

from driftline.errors import Forbidden, Unavailable
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.kubernetes.namespaces import Namespaces
from tests.kubernetes_launcher.fake_cluster import FakeNamespaces
from tests.kubernetes_launcher.made import STUDY, config

META = {"name": "n", "namespace": "two", "uid": "u", "labels": {"driftline.io/study": STUDY}, "creationTimestamp": "x"}
JOB = {"metadata": META, "spec": {}, "status": {"jobDeploymentStatus": "Waiting"}}
NONE = {"rayjobs": []}
OTHER = "01k6zzzzzzzzzzzzzzzzzzzzzz"
CLOSED, AWAY = Forbidden("no right"), Unavailable("no answer")


def spaces(one, two):
    return Namespaces(FakeNamespaces({"one": one, "two": two}, "one"), {"one", "two"}, "driftline")


@pytest.mark.parametrize("one", [NONE, CLOSED, AWAY])
def test_what_one_namespace_holds_is_found_whatever_the_others_say(one):
    found = spaces(one, {"rayjobs": [JOB]})
    assert found.ask("rayjobs", STUDY) == [JOB]
    assert found.of(JOB).api.namespace == "two"


def test_a_closed_namespace_holds_nothing_as_long_as_another_answers():
    assert spaces(CLOSED, NONE).ask("rayjobs", STUDY) == []
    with pytest.raises(Forbidden):
        spaces(CLOSED, CLOSED).ask("rayjobs", STUDY)


@pytest.mark.parametrize("one", [NONE, CLOSED, AWAY])
def test_that_nothing_is_there_is_not_said_before_all_have_answered(one):
    with pytest.raises(Unavailable):
        spaces(one, AWAY).ask("rayjobs", STUDY)


def test_projects_that_name_no_namespace_share_one():
    found = spaces(NONE, NONE)
    assert found.named(None).api.namespace == "one"
    assert found.named("two").api.namespace == "two"


@pytest.fixture
def answers():
    """What the namespaces of a launcher answer, by name."""
    return {"one": {"rayjobs": []}, "two": {"rayjobs": [JOB]}}


@pytest.fixture
def launcher(answers):
    settings = config(projects={"team": {"namespace": "two"}}, orphan_seconds=0)
    made = KubernetesLauncher(settings, FakeNamespaces(answers, "one"), url="http://a", folder="s3://b/x")
    yield made
    made.close()


def test_a_driver_in_a_namespace_that_was_closed_is_neither_gone_nor_stopped(launcher, answers):
    assert launcher.seen(STUDY).alive
    answers["two"] = CLOSED
    for ask in (lambda study: launcher._spaces.ask("rayjobs", study), launcher.stop):
        for _ in range(2):  # the scheduler asks again and again
            with pytest.raises(Unavailable, match=f"namespace two, which had rayjobs of study {STUDY}, is closed: no"):
                ask(STUDY)
    assert launcher.seen(OTHER).reason == "its RayJob is gone"
    launcher.stop(OTHER)
    answers["two"] = {"rayjobs": [JOB]}
    launcher.stop(STUDY)
    assert answers["two"] == NONE
    launcher.stop(STUDY)


def test_a_driver_is_not_killed_where_its_pods_cannot_be_seen(launcher, answers):
    assert launcher.seen(STUDY).alive
    answers["two"] = CLOSED
    with pytest.raises(Unavailable, match="is closed"):
        launcher.kill(STUDY)


def test_a_closed_namespace_is_no_matter_to_studies_elsewhere(launcher, answers):
    answers.update(one={"rayjobs": [JOB | {"metadata": META | {"namespace": "one"}}]}, two=CLOSED)
    assert launcher.seen(STUDY).alive
    for _ in range(2):
        launcher.stop(STUDY)
        assert answers["one"] == NONE
