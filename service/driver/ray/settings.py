"""Environment variables that a driver's Ray starts under, and that its process goes back to."""

from __future__ import annotations

import functools
import os
import secrets
import sys

_TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}


def read_again() -> None:
    """Makes Ray read its environment variables again: it has read them at its import, or for an earlier Ray.

    A process whose Ray still expects another Ray's token refuses every call from the new one, and its actors are
    destroyed as if nobody referred to them. Settings first, the token after them: a thread of the old Ray that still
    ends asks for a token, if the settings want one, and must find it.
    """
    ray = sys.modules.get("ray")
    if ray is None or ray.is_initialized():
        return
    ray._raylet.Config.initialize("")
    if os.environ.get("RAY_AUTH_MODE") != "token" or _TOKENS & set(os.environ):
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def variables(private: bool) -> dict[str, str]:
    """Environment variables that Ray is started under."""
    found = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that a relative DATA_DIR means the same everywhere
        "RAY_ENABLE_AUTO_CONNECT": "0",  # a Ray that has gone is an error, not a reason to start another
    }
    if private:
        mode = os.environ.get("RAY_AUTH_MODE", "token")
        found["RAY_AUTH_MODE"] = mode
        if mode == "token" and not _TOKENS & set(os.environ):
            found["RAY_AUTH_TOKEN"] = _token()
    return found


@functools.cache
def _token() -> str:
    """A random token, one for the life of this process: what is left of an earlier Ray may still ask for it."""
    return secrets.token_hex(32)


def passed_on() -> dict[str, str]:
    """Environment variables that workers on other machines need; in a Ray Job they have those of the job."""
    names = () if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ else ("DATA_DIR", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in names if name in os.environ}
