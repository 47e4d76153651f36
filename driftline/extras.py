"""Packages beyond the light client: the extra that installs each, and the error where one is missing.

`pip install driftline` is enough for a client of a service; pyproject.toml lists what each extra adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driftline.errors import DriftlineError

EXTRAS = {
    "local": (
        *("alembic", "cloudpickle", "cmaes", "fastapi", "fsspec", "jinja2", "jwt", "matplotlib", "mlflow", "optuna"),
        *("prometheus_client", "pyarrow", "ray", "scipy", "sqlalchemy", "starlette", "torch", "uvicorn", "zlib_ng"),
    ),
    "service": ("psycopg",),
    "cluster": ("kubernetes",),
}
"""Extra -> top-level modules that it installs, as far as Driftline imports them."""


def missing(error: ModuleNotFoundError, instead: str = "") -> DriftlineError | None:
    """The error that names the extra to install; None if the module belongs to no extra.

    Args:
        error: The error that an import raised.
        instead: An alternative to installing the package, for the message.
    """
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            remedy = f"pip install 'driftline[{extra}]'"
            return DriftlineError(
                f"this needs {module}, which is not installed: {remedy}{instead and f', or {instead}'}"
            )
    return None


@contextmanager
def optional_packages(instead: str = "") -> Iterator[None]:
    """Within the block, a missing package of an extra is a `DriftlineError` that names the extra.

    Args:
        instead: An alternative to installing the package, for the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        named = missing(error, instead)
        if named is None:
            raise
        raise named from error
