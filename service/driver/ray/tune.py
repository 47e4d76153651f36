"""The Ray Tune Searcher and the Tuner around it: Tune executes packs, and decides nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray import tune
from ray.tune.search import Searcher

from driftline.errors import Conflict, DriftlineError, NotFound, StaleDriver, Unavailable
from service.code_digest import code_digest
from service.driver.lease import Watch
from service.driver.ray.cluster import Broken
from service.driver.ray.environment import environment
from service.driver.ray.lean_ray import lean_fit
from service.driver.ray.worker import Worker
from service.driver.search.search import Search

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_MOST_PACKS = 4096
_TIMES = 10.0
"""A worker may be silent for this many times its longest silence between two reports before it counts as hung."""

_STEP_S = 5.0
"""Most seconds that a turn of Tune's loop counts as: while the driver waits for the API, it takes no reports."""

_QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the caller handles Ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # what Tune would save is in the store
    "TUNE_WARN_THRESHOLD_S": "30",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "86400",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints a banner whatever verbose says
}


class PackSearcher(Searcher):
    """Hands the search's packs to Tune, and Tune's results to the search. Never raises.

    An exception in a Searcher would abort the whole `fit` with all running packs. Here it becomes the reason to stop,
    so that the packs write their checkpoints first.

    Args:
        search: Decides which packs to run, and takes their reports.
        watch: Says when to stop.
    """

    def __init__(self, search: Search, watch: Watch) -> None:
        super().__init__()
        self._search = search
        self._watch = watch
        self._packs: dict[str, str] = {}  # by Tune's trial id
        self._hung: dict[str, str] = {}  # why a worker was killed, by Tune's trial id
        self._further: dict[str, int] = {}  # until which round a waiting program continues, by Tune's trial id

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher to restore it; a driver is restored from the store instead

    def suggest(self, trial_id: str) -> Any:
        """The next pack as a config, None to wait, or FINISHED."""
        if self._watch.look():
            return self.FINISHED
        job = self._guarded(self._search.next_job)
        if self._search.finished or self._watch.why:
            return self.FINISHED
        if job is None:
            return None
        self._packs[trial_id] = job.pack
        return job.config()

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Takes a pack's report; the API's answer says what the study's owner wants."""
        report = json.loads(result["report"])
        if report.get("code"):
            problem = f"a worker on {report['host']} runs other code of Driftline ({report['code']}) than this driver"
            rule = "install the same on all nodes"
            self._watch.ask("failed", f"{problem} ({code_digest()}): {rule}")
            return
        self._guarded(lambda: self._search.report(report))
        if (until := self._search.further.pop(report["pack"], None)) is not None:
            self._further[trial_id] = until
        if self._search.desired != "run":
            self._watch.ask(self._search.desired)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Takes a pack's last report, or records that its worker died."""
        pack = self._packs.pop(trial_id, None)
        self._further.pop(trial_id, None)
        if error or not result or "report" not in result:
            if pack is not None:
                reason = self._hung.pop(trial_id, "its worker died")
                self._guarded(lambda: self._search.lost(pack, reason))
            return
        self.on_trial_result(trial_id, result)

    def further(self, trial_id: str) -> int | None:
        """The round until which a program that waits at a rung continues, once; None if nothing was decided."""
        return self._further.pop(trial_id, None)

    def hung(self, trial_id: str, reason: str) -> None:
        """Records why a pack's worker is about to be killed."""
        self._hung[trial_id] = reason

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Saves nothing: everything is in the store."""

    def _guarded(self, action: Callable[[], _Answer]) -> _Answer | None:
        if self._watch.why == "stale":
            return None
        try:
            return action()
        except StaleDriver as error:
            self._watch.ask("stale", error.message)
        except Unavailable as error:
            self._watch.ask("lost", error.message, at_once=isinstance(error, Broken))
        except (Conflict, NotFound) as error:  # the store has changed, such as to a backup: start again
            self._watch.ask("lost", error.message)
        except DriftlineError as error:
            self._watch.ask("failed", error.message)
        except Exception as error:
            _LOG.exception("the driver failed")
            self._watch.ask("failed", f"{type(error).__name__}: {error}")
        return None


class Halt(tune.Stopper):
    """Ends the fit without waiting for packs, when the watch says so."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch

    def __reduce__(self) -> tuple[type[Halt], tuple[()]]:
        return Halt, ()  # Tune pickles it; there is no state to keep

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never stops a single pack."""
        return False

    def stop_all(self) -> bool:
        """Whether to end at once."""
        return self._watch is not None and self._watch.at_once()


@dataclass
class _Heard:
    """A worker that trains a pack.

    Attributes:
        actor: The worker.
        at: When it last started, reported or was killed, on the loop's clock.
        reported: Whether it has reported.
        longest: Its longest silence between two reports, in seconds; the time before the first report, in which it
            builds the pack, does not count.
        killed: Whether it was killed for its silence.
    """

    actor: Any
    at: float
    reported: bool = False
    longest: float = 0.0
    killed: bool = False


class Pulse(tune.Callback):
    """Tells workers to stop, and kills hung ones: stuck in a kernel, on a disk that does not answer, or suspended.

    Tune calls it at every turn of its loop, which also shows the watch that the driver itself makes progress. Its clock
    counts at most `_STEP_S` seconds for a turn, so that a pack is never blamed for a pause of the driver.

    Args:
        watch: Learns of every turn of the loop; a silence of its `hang_s` seconds is always allowed.
        hung: Called with the id of a Tune trial whose worker is about to be killed, and the reason.
        further: Gives the round until which a Tune trial that waits at a rung continues; None if nothing was decided.
        kill: Ends an actor; tests pass their own.
        stop: Tells an actor to end its pack with a checkpoint; tests pass their own.
        go_on: Tells an actor how far to go; tests pass their own.
        clock: Gives seconds; tests pass their own.
    """

    def __init__(
        self,
        watch: Watch,
        hung: Callable[[str, str], None],
        further: Callable[[str], int | None] = lambda trial_id: None,
        *,
        kill: Callable[[Any], None] = lambda actor: ray.kill(actor, no_restart=True),
        stop: Callable[[Any], None] = lambda actor: actor.request_stop.remote(),
        go_on: Callable[[Any, int], None] = lambda actor, until: actor.go_on.remote(until),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._say = hung
        self._kill = kill
        self._stop = stop
        self._further = further
        self._go_on = go_on
        self._clock = clock
        self._turned = clock()
        self._now = 0.0
        self._workers: dict[str, _Heard] = {}

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        return tune.Callback, ()  # Tune pickles it; there is no state to keep

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Watches the worker of a started pack; a pack that still waits for its node is not watched."""
        heard = self._workers[trial.trial_id] = _Heard(trial.temporary_state.ray_actor, self._now)
        if self._watch.why:  # the reason to stop came before this worker
            self._stop(heard.actor)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A pack has reported, and the searcher has taken the report."""
        heard = self._workers.get(trial.trial_id)
        if heard is not None:
            if heard.reported:
                heard.longest = max(heard.longest, self._now - heard.at)
            heard.reported, heard.at = True, self._now
            if (until := self._further(trial.trial_id)) is not None:  # before its next step
                self._go_on(heard.actor, until)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A pack has ended; the searcher has taken its last report."""
        self._workers.pop(trial.trial_id, None)
        _forget(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A worker has died."""
        self._workers.pop(trial.trial_id, None)
        _forget(trial)

    def request_stop(self) -> None:
        """Tells all workers to end their packs with a checkpoint; may be called from any thread."""
        for heard in list(self._workers.values()):
            self._stop(heard.actor)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called once per iteration of Tune's loop: kills workers that have been silent for too long."""
        self._watch.move()
        turned = self._clock()
        self._now += min(turned - self._turned, _STEP_S)
        self._turned = turned
        for trial_id, heard in self._workers.items():
            silence, allowed = self._now - heard.at, max(self._watch.hang_s, _TIMES * heard.longest)
            if silence <= allowed:
                continue
            if heard.killed:
                self._watch.ask("lost", "a worker hangs and cannot be killed", at_once=True)
                continue
            heard.killed, heard.at = True, self._now
            self._say(trial_id, f"its worker hung: no report for {silence:.0f} s")
            self._kill(heard.actor)


def fit(search: Search, watch: Watch, folder: str) -> None:
    """Runs packs until the search is finished or the watch says stop. Ray must have been started.

    Args:
        search: Decides which packs to run, and takes their reports.
        watch: Says when to stop.
        folder: An empty local folder for the files that Tune insists on writing; removed by the caller.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the search logs dead workers
    packs = PackSearcher(search, watch)
    pulse = Pulse(watch, packs.hung, packs.further)
    watch.move()
    watch.when_asked(pulse.request_stop)
    try:
        with environment(_QUIET), lean_fit():
            _tuner(packs, pulse, Halt(watch), folder).fit()
    finally:
        watch.leave()


def _tuner(packs: PackSearcher, pulse: Pulse, halt: Halt, folder: str) -> tune.Tuner:
    return tune.Tuner(
        Worker,
        tune_config=tune.TuneConfig(
            search_alg=packs,
            num_samples=-1,
            max_concurrent_trials=_MOST_PACKS,  # the search keeps to the slots, whose number may grow
            reuse_actors=True,
            trial_dirname_creator=_directory,
            trial_name_creator=_directory,
        ),
        run_config=tune.RunConfig(
            name="packs",
            storage_path=folder,
            verbose=0,
            callbacks=[pulse],
            stop=halt,
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def _forget(trial: Any) -> None:
    """Removes pack, last report and statistics of times from a Tune trial that has ended: Tune keeps all its trials."""
    trial.config.clear()
    trial.evaluated_params.clear()
    trial.experiment_tag = ""  # has the whole config once more
    for name in ("report", "experiment_tag"):
        trial.run_metadata.last_result.pop(name, None)
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


def _directory(trial: Any) -> str:
    return str(trial.trial_id)
