"""Libraries of the extra driftline[data], imported when a format needs them."""

from __future__ import annotations

import importlib
from typing import Any

from trainers.errors import MissingDataError


def library(module: str, what: str, key_path: str = "") -> Any:
    """Imports a library.

    Args:
        module: dotted name, such as "PIL.Image".
        what: what needs the library, for the error.
        key_path: dotted path of the setting that names the data.

    Raises:
        MissingDataError: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        where = f"{key_path}: " if key_path else ""
        name = module.partition(".")[0]
        raise MissingDataError(f"{where}{what} need {name}: pip install 'driftline[data]'", key_path) from error
