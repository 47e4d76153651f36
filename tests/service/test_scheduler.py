"""What the scheduler decides."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.scheduler.reconcile import Kill, Launched, Lost, Note, Queue, Settle, Start, Stop, reconcile
from service.store.leases import Driven

ONE = {"a": "ray", "b": "ray", "c": "ray"}


def study(name: str, state: Any = "PENDING", **values: Any) -> Driven:
    defaults = {"reason": "", "attempt": 0, "held": False, "lost": False, "deaths": 0}
    return Driven(**{"id": name, "project": "default", "name": name, "state": state, **defaults, **values})


def ours(attempt: int = 1, alive: bool = True, since: float = 0.0, **values: Any) -> Launched:
    return Launched(alive=alive, attempt=attempt, since=since, cluster="ray", project="default", study="a", **values)


# ---- decisions


def test_the_oldest_study_starts_and_the_others_wait() -> None:
    reason = "waits until study a has finished: one study at a time on a Ray cluster"
    found = reconcile([study("b"), study("a"), study("c", "QUEUED", reason=reason)], {}, ONE, 0)
    assert found == [Start("a", 1), Queue("b", reason)]  # c waits for that already


def test_names_of_other_projects_studies_are_not_told() -> None:
    other = replace(study("b"), project="speech")
    reason = "waits until another study has finished: one study at a time on a Ray cluster"
    assert reconcile([study("a"), other], {}, ONE, 0) == [Start("a", 1), Queue("b", reason)]
    assert reconcile([other], {"a": ours()}, ONE, 0) == [Queue("b", reason)]  # a has ended, but its driver has not


def test_studies_with_clusters_of_their_own_all_start() -> None:
    assert reconcile([study("a"), study("b")], {}, {}, 0) == [Start("a", 1), Start("b", 1)]


def test_a_study_that_ran_already_goes_before_an_older_one() -> None:
    found = reconcile([study("a"), study("b", "RUNNING", attempt=3)], {}, ONE, 0)
    assert found[0] == Start("b", 4)
    assert isinstance(found[1], Queue)


def test_nothing_to_do() -> None:
    held = study("a", "RUNNING", attempt=1, held=True)
    assert reconcile([held], {"a": ours()}, ONE, 0) == []
    assert reconcile([held], {}, ONE, 0) == []  # started by a scheduler before this one
    assert reconcile([study("a")], {"a": ours()}, ONE, 5) == []  # started, not yet there
    assert reconcile([], {}, ONE, 0) == []


def test_a_driver_whose_process_has_ended_is_lost() -> None:
    held = study("a", "RUNNING", attempt=1, held=True)
    assert reconcile([held], {"a": ours(alive=False)}, ONE, 0) == [
        Lost("a", 1, "its process has ended"),
        Stop("a", "it has ended"),
    ]
    assert reconcile([study("a")], {"a": ours(alive=False)}, ONE, 0) == [
        Lost("a", 0, "its process ended before it took the study", early=True),
        Stop("a", "it has ended"),
    ]


HANGS = "it hangs: its process is alive, but was silent while the API answered"


def test_a_driver_that_is_silent_may_come_back_and_is_then_lost_and_killed() -> None:
    silent = study("a", "RUNNING", attempt=2, lost=True)
    reason = "it was silent for longer than its lease, or its process has ended"
    lives = ours(2, silent_since=100.0)  # the API was away, for all that is known
    assert reconcile([silent], {"a": lives}, ONE, 160) == []
    assert reconcile([silent], {"a": lives}, ONE, 161) == [Lost("a", 2, HANGS), Kill("a", HANGS)]
    dead = ours(2, alive=False, silent_since=100.0)
    assert reconcile([silent], {"a": dead}, ONE, 100) == [Stop("a", "it is lost"), Lost("a", 2, reason)]
    (only,) = reconcile([silent], {}, ONE, 0)  # another scheduler had started it
    assert only == Lost("a", 2, "it ended with the service that had started it", counted=False)


def test_a_driver_is_not_blamed_while_the_api_does_not_answer() -> None:
    silent = study("a", "RUNNING", attempt=2, lost=True)
    lives = {"a": ours(2, silent_since=100.0)}
    assert reconcile([silent], lives, ONE, 500, unanswered=499.0) == []
    assert reconcile([silent], lives, ONE, 559, unanswered=499.0) == []
    assert reconcile([silent], lives, ONE, 560, unanswered=499.0) == [Lost("a", 2, HANGS), Kill("a", HANGS)]
    assert reconcile([silent], lives, ONE, 1000, unanswered=1000.0) == []
    # A driver that cannot reach the API gives up after ten minutes.
    assert reconcile([silent], lives, ONE, 1001, unanswered=1001.0) == [Lost("a", 2, HANGS), Kill("a", HANGS)]


def test_a_killed_driver_is_replaced_when_it_has_ended_and_not_before() -> None:
    lost = study("a", "RUNNING", attempt=2, deaths=1)
    killed = ours(2, idle_since=0.0, killed=True)
    for now in (1, 61, 10_000):
        assert reconcile([lost, study("b")], {"a": killed}, ONE, now)[0] == Kill("a", "it has not ended yet")
        assert reconcile([lost], {"a": killed}, ONE, now) == [Kill("a", "it has not ended yet")]
    stuck = replace(killed, reason="pods have not ended yet: x")
    waits = Queue("a", "waits until its last driver has ended: pods have not ended yet: x")
    assert reconcile([lost], {"a": stuck}, ONE, 1) == [Kill("a", "it has not ended yet"), waits]
    cancelling = replace(lost, state="CANCELLING")
    assert reconcile([cancelling], {"a": stuck}, ONE, 1) == [Kill("a", "it has not ended yet")]
    dead = replace(killed, alive=False)
    assert reconcile([lost], {"a": dead}, ONE, 1) == [Stop("a", "it has ended")]  # counted once, when it was lost
    assert reconcile([lost], {}, ONE, 2) == [Start("a", 3)]


def test_a_driver_that_never_comes_is_lost() -> None:
    assert reconcile([study("a")], {"a": ours()}, ONE, 600) == []
    kill, lost = reconcile([study("a")], {"a": ours()}, ONE, 601)
    assert (type(kill), lost) == (Kill, Lost("a", 0, "it did not take the study within 600 s", early=True))


def test_a_study_whose_drivers_are_all_lost_fails() -> None:
    (only,) = reconcile([study("a", "RUNNING", attempt=2, deaths=2)], {}, ONE, 0)
    assert only == Start("a", 3)
    (only,) = reconcile([study("a", "RUNNING", attempt=3, deaths=3)], {}, ONE, 0)
    assert only.state == "FAILED"
    assert only.reason.startswith("3 drivers in a row were lost")


def test_wishes_about_studies_without_a_driver_are_fulfilled() -> None:
    found = reconcile([study("a", "PAUSING", attempt=1), study("b", "CANCELLING", attempt=1)], {}, ONE, 0)
    assert found == [Settle("a", "PAUSED", ""), Settle("b", "CANCELLED", "")]
    assert reconcile([study("a", "PAUSING", attempt=1, held=True)], {"a": ours()}, ONE, 0) == []


def test_a_driver_may_clean_up_before_the_next_one_uses_the_cluster() -> None:
    ending = {"a": ours(idle_since=10.0)}
    (only,) = reconcile([study("b")], ending, ONE, 60)
    assert isinstance(only, Queue)
    assert reconcile([study("b", "QUEUED", reason=only.reason)], ending, ONE, 71)[0] == Stop(
        "a", "it released its study, but did not end within 60 s"
    )
    assert reconcile([study("b")], {"a": ours(alive=False, idle_since=10.0)}, ONE, 20) == [
        Stop("a", "it has ended"),
        Start("b", 1),
    ]


def test_a_driver_that_let_go_of_an_unfinished_study_is_followed_by_another_one() -> None:
    pending = study("a", "PENDING", attempt=1)
    assert reconcile([pending], {"a": ours(idle_since=0.0)}, ONE, 1) == []
    assert reconcile([pending], {"a": ours(alive=False, idle_since=0.0)}, ONE, 1) == [Stop("a", "it has ended")]
    assert reconcile([pending], {}, ONE, 2) == [Start("a", 2)]


STATES = st.sampled_from(["PENDING", "QUEUED", "RUNNING", "PAUSING", "CANCELLING"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Driven], dict[str, Launched]]:
    studies, launched = [], {}
    for name in draw(st.lists(st.sampled_from("abcde"), unique=True)):
        lease = draw(st.sampled_from(["none", "held", "lost", "released"]))
        attempt = 0 if lease == "none" else draw(st.integers(1, 3))
        if draw(st.booleans()):
            studies.append(
                study(
                    name,
                    draw(STATES),
                    attempt=attempt,
                    held=lease == "held",
                    lost=lease == "lost",
                    deaths=draw(st.integers(0, 4)),
                )
            )
        if draw(st.booleans()):
            launched[name] = ours(
                draw(st.integers(1, 3)), draw(st.booleans()), draw(st.floats(0, 1000)), killed=draw(st.booleans())
            )
    return studies, launched


@given(worlds(), st.floats(0, 2000))
def test_decisions_are_safe(world: tuple[list[Driven], dict[str, Launched]], now: float) -> None:
    studies, launched = world
    actions = reconcile(studies, launched, dict.fromkeys("abcde", "ray"), now)
    assert actions == reconcile(studies[::-1], launched, dict.fromkeys("abcde", "ray"), now)
    starts = [action for action in actions if isinstance(action, Start)]
    assert len(starts) <= 1
    if starts:  # nothing else uses the cluster
        assert not any(known.alive for known in launched.values())
        assert not any(one.held for one in studies)
    by_id = {one.id: one for one in studies}
    for action in actions:
        if isinstance(action, Settle):  # never against a living driver
            assert not by_id[action.study_id].held
            assert action.study_id not in launched


def test_a_study_that_cannot_run_fails_at_once_with_the_reason() -> None:
    hopeless = ours(reason="no node has 4 GPUs", hopeless=True)
    failed = Settle("a", "FAILED", "no node has 4 GPUs")
    assert reconcile([study("a")], {"a": hopeless}, ONE, 0) == [Stop("a", "no node has 4 GPUs"), failed]
    (*before, last) = reconcile([study("a")], {"a": replace(hopeless, alive=False)}, ONE, 0)
    assert before == [Lost("a", 0, "no node has 4 GPUs", early=True), Stop("a", "it has ended")]
    assert last == failed
    cancelled = reconcile([study("a", "CANCELLING")], {"a": replace(hopeless, alive=False)}, ONE, 0)
    assert cancelled[-1] == Settle("a", "CANCELLED", "")


def test_why_a_driver_does_not_come_up_is_shown_on_the_study() -> None:
    pulling = {"a": ours(reason="the image is being pulled")}
    assert reconcile([study("a")], pulling, ONE, 5) == [Queue("a", "the image is being pulled")]
    assert reconcile([study("a", "QUEUED", reason="the image is being pulled")], pulling, ONE, 5) == []
    training = study("a", "RUNNING", attempt=1, held=True)
    assert reconcile([training], pulling, ONE, 5) == [Note("a", 1, "the image is being pulled")]
    _, lost = reconcile([study("a")], pulling, ONE, 601)
    assert lost == Lost("a", 0, "it did not take the study within 600 s: the image is being pulled", early=True)


def test_a_driver_of_another_scheduler_may_come_back_after_an_outage_of_the_service() -> None:
    silent = study("a", "RUNNING", attempt=2, lost=True)
    adopted = ours(2, since=100.0, silent_since=100.0, adopted=True)
    assert reconcile([silent], {"a": adopted}, ONE, 160) == []
    assert [type(action) for action in reconcile([silent], {"a": adopted}, ONE, 161)] == [Lost, Kill]
    dead = replace(adopted, attempt=3, alive=False)  # it never came to take the study: not the study's fault
    assert reconcile([study("a", attempt=2)], {"a": dead}, ONE, 120)[0] == Lost(
        "a", 2, "its process ended before it took the study", counted=False, early=True
    )


def test_projects_take_turns() -> None:
    waiting = [replace(study(name), project="one") for name in "abc"] + [replace(study("d"), project="two")]
    everywhere = dict.fromkeys("abcd", "ray")
    assert reconcile(waiting, {}, everywhere, 0)[0] == Start("a", 1)
    assert reconcile(waiting, {}, everywhere, 0, served={"one": 50.0})[0] == Start("d", 1)
    assert reconcile(waiting, {}, everywhere, 0, served={"one": 50.0, "two": 60.0})[0] == Start("a", 1)
    starts = [action.study_id for action in reconcile(waiting, {}, {}, 0) if isinstance(action, Start)]
    assert starts == ["a", "d", "b", "c"]  # all at once, but project two does not wait behind all of one's


def test_a_project_has_no_more_studies_running_than_it_may() -> None:
    running = replace(study("a", "RUNNING", attempt=1, held=True), project="one")
    waiting = [replace(study("b"), project="one"), replace(study("c"), project="two")]
    found = reconcile([running, *waiting], {}, {}, 0, per_project=1)
    full = "waits for another study of its project: 1 at a time"
    assert found == [Start("c", 1), Queue("b", full)]
    together = [replace(study(name), project="one") for name in "ab"]
    assert reconcile(together, {}, {}, 0, per_project=1) == [Start("a", 1), Queue("b", full)]
