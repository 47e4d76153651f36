"""The Ray Tune Searcher and the Tuner around it: Tune executes packs, and decides nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ray import tune
from ray.tune.search import Searcher

from service.driver.cluster import Broken
from service.driver.environment import environment
from service.driver.search import Search
from service.driver.watch import Watch
from service.driver.worker import Worker
from service.errors import DriftlineError, StaleDriver, Unavailable

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_MOST_PACKS = 4096
_QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C belongs to whoever runs the driver
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # what Tune would save is in the store
    "TUNE_WARN_THRESHOLD_S": "30",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "86400",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints a banner whatever verbose says
}


class PackSearcher(Searcher):
    """Hands the search's packs to Tune, and Tune's results to the search. No exception leaves it.

    An exception in a Searcher aborts the whole `fit`, running packs included; so it is noted as the reason to stop,
    and the packs come to their checkpoints.

    Args:
        search: What is searched.
        watch: Says when to stop.
    """

    def __init__(self, search: Search, watch: Watch) -> None:
        super().__init__()
        self._search = search
        self._watch = watch
        self._packs: dict[str, str] = {}  # by Tune's trial id

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher to restore from it; the store is what a driver is restored from

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
        """Takes a pack's report."""
        self._guarded(lambda: self._search.report(json.loads(result["report"])))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Takes a pack's last report, or notes that its worker died."""
        pack = self._packs.pop(trial_id, None)
        if error or not result or "report" not in result:
            if pack is not None:
                self._guarded(lambda: self._search.lost(pack))
            return
        self.on_trial_result(trial_id, result)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Saves nothing: the store holds all there is."""

    def _guarded(self, action: Callable[[], _Answer]) -> _Answer | None:
        if self._watch.why == "stale":
            return None
        try:
            return action()
        except StaleDriver as error:
            self._watch.ask("stale", error.message)
        except Unavailable as error:
            self._watch.ask("lost", error.message, at_once=isinstance(error, Broken))
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
        return Halt, ()  # Tune saves it; there is nothing to save

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never stops a single pack."""
        return False

    def stop_all(self) -> bool:
        """Whether to end at once."""
        return self._watch is not None and self._watch.at_once()


def fit(search: Search, watch: Watch, folder: str) -> None:
    """Runs packs until the search is finished or the watch says stop. Ray must have been started.

    Args:
        search: What is searched.
        watch: Says when to stop.
        folder: An empty folder of this machine for what Tune insists on writing; removed by the caller.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # dead workers are told by the search
    with environment(_QUIET):
        _tuner(search, watch, folder).fit()


def _tuner(search: Search, watch: Watch, folder: str) -> tune.Tuner:
    return tune.Tuner(
        Worker,
        tune_config=tune.TuneConfig(
            search_alg=PackSearcher(search, watch),
            num_samples=-1,
            max_concurrent_trials=_MOST_PACKS,  # the search keeps to the slots, which may grow
            reuse_actors=True,
            trial_dirname_creator=_directory,
            trial_name_creator=_directory,
        ),
        run_config=tune.RunConfig(
            name="packs",
            storage_path=folder,
            verbose=0,
            stop=Halt(watch),
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def _directory(trial: Any) -> str:
    return str(trial.trial_id)
