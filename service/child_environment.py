"""The environment of processes that run code of plug-ins, or serve strangers: made anew, without the service's secrets.

A list of what is kept cannot forget a secret that somebody puts into the service's environment next year.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_KEPT = frozenset(
    {
        *("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "DATA_DIR"),
        *("LANG", "LANGUAGE", "TZ", "TERM", "GIT_PYTHON_REFRESH"),
    }
)
_FAMILIES = (
    *("LC_", "PYTHON", "MPL", "MALLOC_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NUMEXPR_", "TORCH", "PYTORCH_"),
    *("CUDA_", "NVIDIA_", "COV_CORE_", "COVERAGE_"),
)


def child_environment(environ: Mapping[str, str], *, more: Collection[str] = ()) -> dict[str, str]:
    """What of an environment says where programs and data lie and how many threads compute.

    Args:
        environ: The environment of the service.
        more: Names of variables that are kept too; ``RAY_`` stands for all that begin so.

    Examples:
        >>> child_environment({"PATH": "/bin", "OMP_NUM_THREADS": "2", "DRIFTLINE_ADMIN_TOKEN": "s3cret"})
        {'PATH': '/bin', 'OMP_NUM_THREADS': '2'}
    """
    families = (*_FAMILIES, *(name for name in more if name.endswith("_")))
    kept = _KEPT.union(more)
    return {name: value for name, value in environ.items() if name in kept or name.startswith(families)}
