"""Several namespaces looked at as one: what counts when some of them cannot be seen."""

import pytest

from driftline.errors import Forbidden, Unavailable
from service.launchers.kubernetes.namespaces import Namespaces
from tests.kubernetes_launcher.made import STUDY

JOB = {"metadata": {"name": "n", "namespace": "two", "uid": "u", "labels": {"driftline.io/study": STUDY}}}
CLOSED, AWAY = Forbidden("no right"), Unavailable("no answer")


class FakeApi:
    """A namespace that lists these objects, or raises this error."""

    def __init__(self, namespace, answers):
        self.namespace = namespace
        self._answers = answers

    def within(self, namespace):
        return FakeApi(namespace, self._answers)

    def items(self, kind, selector):
        answer = self._answers[self.namespace]
        if isinstance(answer, Exception):
            raise answer
        return list(answer), "1"


def spaces(one, two):
    return Namespaces(FakeApi("one", {"one": one, "two": two}), {"one", "two"}, "driftline")


@pytest.mark.parametrize("one", [[], CLOSED, AWAY])
def test_what_one_namespace_holds_is_found_whatever_the_others_say(one):
    found = spaces(one, [JOB])
    assert found.ask("rayjobs", STUDY) == [JOB]
    assert found.of(JOB).api.namespace == "two"


def test_a_closed_namespace_holds_nothing_as_long_as_another_answers():
    assert spaces(CLOSED, []).ask("rayjobs", STUDY) == []
    with pytest.raises(Forbidden):
        spaces(CLOSED, CLOSED).ask("rayjobs", STUDY)


@pytest.mark.parametrize("one", [[], CLOSED, AWAY])
def test_that_nothing_is_there_is_not_said_before_all_have_answered(one):
    with pytest.raises(Unavailable):
        spaces(one, AWAY).ask("rayjobs", STUDY)


def test_projects_that_name_no_namespace_share_one():
    found = spaces([], [])
    assert found.named(None).api.namespace == "one"
    assert found.named("two").api.namespace == "two"
