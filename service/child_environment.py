"""The environment of processes that run code of plug-ins, or serve strangers: without the service's secrets.

The variables that are kept are listed, so that a secret that the service gets later is left out as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

SECRET = "DRIFTLINE_SECRET_"
"""Prefix of the variables in which a service gives workers the secrets of its studies' programs."""

_KEPT = frozenset(
    {
        *("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "DATA_DIR"),
        *("XDG_CACHE_HOME", "DRIFTLINE_CACHE_GIB"),
        *("LANG", "LANGUAGE", "TZ", "TERM", "GIT_PYTHON_REFRESH"),
    }
)
_FAMILIES = (
    *("LC_", "PYTHON", "MPL", "MALLOC_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NUMEXPR_", "TORCH", "PYTORCH_"),
    *("CUDA_", "NVIDIA_", "COV_CORE_", "COVERAGE_"),
)


def child_environment(environ: Mapping[str, str], *, more: Collection[str] = ()) -> dict[str, str]:
    """The variables that say where programs and data are and how many threads to use.

    Args:
        environ: The environment of the service.
        more: Names of further variables to keep; a name that ends in ``_``, as ``RAY_``, keeps all that begin with it.

    Examples:
        >>> child_environment({"PATH": "/bin", "OMP_NUM_THREADS": "2", "DRIFTLINE_ADMIN_TOKEN": "s3cret"})
        {'PATH': '/bin', 'OMP_NUM_THREADS': '2'}
    """
    families = (*_FAMILIES, *(name for name in more if name.endswith("_")))
    kept = _KEPT.union(more)
    return {name: value for name, value in environ.items() if name in kept or name.startswith(families)}


def program_environment(program: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a study's program: without tokens of Driftline, Ray or a storage.

    Args:
        program: The program, as in a study's document. Without a folder it runs on a service, where its secrets are
            the variables that begin with `SECRET`.
        environ: The environment of the worker.
    """
    named = {name: name for name in program.get("secrets", ()) if name in environ}
    if not program["folder"]:
        named = {name.removeprefix(SECRET): name for name in environ if name.startswith(SECRET)}
    secrets = {name: environ[source] for name, source in named.items()}
    return {**child_environment(environ), **secrets, **program.get("env", {})}
