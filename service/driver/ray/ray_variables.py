"""The environment variables of Ray under a driver."""

from __future__ import annotations

import functools
import os
import secrets
import sys

from service.cores import usable_cores
from service.known_versions import known

_TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
_MOST_EARLY = 8
"""Most cores with which Ray starts its workers before they have work; with more, a study may have fewer packs."""

_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
"""Attempts to join a cluster, 20 by default. Each waits 40 s for an answer where something accepts connections."""


def read_again() -> None:
    """Makes Ray read its environment variables again, which it read when it was imported or started before.

    A process that still expects the token of an earlier Ray rejects every call from the new one, and its actors are
    destroyed as if nothing referred to them. The settings come before the token: a thread of the earlier Ray may still
    be ending; if the settings require a token, it asks for one and must find it. With an unknown version Ray keeps what
    it read first, so that a process can use only one kind of authentication.
    """
    ray = sys.modules.get("ray")
    if ray is None or ray.is_initialized() or not known("ray"):
        return
    ray._raylet.Config.initialize("")
    if os.environ.get("RAY_AUTH_MODE") != "token" or _TOKENS & set(os.environ):
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def variables(private: bool) -> dict[str, str]:
    """Environment variables with which to start Ray."""
    env = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that a relative DATA_DIR means the same everywhere
        "RAY_ENABLE_AUTO_CONNECT": "0",  # if Ray has ended, that is an error: do not start another
    }
    if private:
        env["RAY_enable_worker_prestart"] = "0"
        # One worker for each core loads its modules while the driver loads its own; none is ended for being idle.
        env["RAY_prestart_worker_first_driver"] = str(int(usable_cores() <= _MOST_EARLY))
        env["RAY_preload_python_modules"] = "service.driver.ray.worker,trainers.run,torch"
        env["RAY_idle_worker_killing_time_threshold_ms"] = str(24 * 3600 * 1000)
        env["RAY_enable_metrics_collection"] = "0"  # each node would show its metrics to everybody, without a token
        mode = os.environ.get("RAY_AUTH_MODE", "token")
        env["RAY_AUTH_MODE"] = mode
        if mode == "token" and not _TOKENS & set(os.environ):
            env["RAY_AUTH_TOKEN"] = _token()
    else:
        env[_ATTEMPTS] = os.environ.get(_ATTEMPTS, "1")
    return env


@functools.cache
def _token() -> str:
    """A random token, the same for the life of this process: threads of an earlier Ray may still ask for it."""
    return secrets.token_hex(32)


def passed_on() -> dict[str, str]:
    """Environment variables for workers on other machines; none in a Ray Job, whose workers have the job's."""
    names = () if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ else ("DATA_DIR", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in names if name in os.environ}
