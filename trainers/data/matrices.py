"""Matrices and points of quadratic losses, read from a document and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.hyperparameters import join, refuse_unknown
from trainers.problem import Quadratics
from trainers.values import number, shown


def hessians(value: Any, path: str) -> NDArray[np.float64]:
    """(clients, d, d) symmetric positive definite matrices.

    Args:
        value: the value from the document.
        path: its dotted path.

    Raises:
        SpecError: the value is not a list of square matrices of one size, or they are not symmetric positive definite.
    """
    if not isinstance(value, (list, tuple)) or not value:
        raise SpecError(f"{path} must be a list with one square matrix per client, got {shown(value)}", path)
    matrices = [_matrix(item, f"{path}.{index}") for index, item in enumerate(value)]
    size = len(matrices[0])
    for index, matrix in enumerate(matrices):
        key_path = f"{path}.{index}"
        if len(matrix) != size:
            raise SpecError(
                f"{key_path} must be {size} x {size} as {path}.0, got {len(matrix)} x {len(matrix)}", key_path
            )
        _check_definite(matrix, key_path)
    return _symmetric(np.stack(matrices))


def centers(value: Any, hessians: NDArray[np.float64], path: str) -> NDArray[np.float64]:
    """(clients, d) minimizers.

    Args:
        value: the value from the document.
        hessians: (clients, d, d).
        path: its dotted path.

    Raises:
        SpecError: the value does not have one list of d numbers for each Hessian.
    """
    clients, size = hessians.shape[:2]
    if not isinstance(value, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in value):
        raise SpecError(f"{path} must be a list with one list of {size} numbers per client, got {shown(value)}", path)
    if len(value) != clients:
        raise SpecError(f"{path} must have one center per hessian: {clients} hessians, got {len(value)} centers", path)
    for index, row in enumerate(value):
        if len(row) != size:
            key_path = f"{path}.{index}"
            raise SpecError(f"{key_path} must have {size} numbers as the hessians have rows, got {len(row)}", key_path)
    return np.array([[number(item, f"{path}.{i}.{j}") for j, item in enumerate(row)] for i, row in enumerate(value)])


def central(value: Any, dimension: int, path: str) -> Quadratics:
    """The server's own quadratic loss, with the server as a single client.

    Args:
        value: {"hessian": (d, d), "center": (d,)}.
        dimension: d of the clients.
        path: its dotted path.

    Raises:
        SpecError: keys are unknown or missing, sizes differ from the clients', or the Hessian is not symmetric positive
            definite.
    """
    if not isinstance(value, Mapping):
        raise SpecError(f'{path} must be like {{"hessian": [[1.0]], "center": [0.0]}}, got {shown(value)}', path)
    refuse_unknown(value, ("hessian", "center"), path)
    for key in ("hessian", "center"):
        if key not in value:
            raise SpecError(f"{join(path, key)} must be given, got none", join(path, key))
    key_path = join(path, "hessian")
    hessian = _matrix(value["hessian"], key_path)
    if len(hessian) != dimension:
        raise SpecError(
            f"{key_path} must be {dimension} x {dimension} as the clients' hessians, "
            f"got {len(hessian)} x {len(hessian)}",
            key_path,
        )
    _check_definite(hessian, key_path)
    key_path = join(path, "center")
    center = value["center"]
    if not isinstance(center, (list, tuple)) or len(center) != dimension:
        raise SpecError(f"{key_path} must be a list of {dimension} numbers, got center={shown(center)}", key_path)
    server_center = np.array([[number(item, f"{key_path}.{index}") for index, item in enumerate(center)]])
    return Quadratics(_symmetric(hessian[None]), server_center, np.zeros(1))


def _check_definite(matrix: NDArray[np.float64], key_path: str) -> None:
    scale = float(np.abs(matrix).max())
    row, column = (int(i) for i in np.unravel_index(np.abs(matrix - matrix.T).argmax(), matrix.shape))
    if abs(matrix[row, column] - matrix[column, row]) > 1e-9 * scale:
        raise SpecError(
            f"{key_path} must be symmetric, got {matrix[row, column]:g} at row {row}, column {column} "
            f"and {matrix[column, row]:g} at row {column}, column {row}",
            key_path,
        )
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest <= 1e-14 * scale:
        raise SpecError(f"{key_path} must be positive definite, got smallest eigenvalue {smallest:.6g}", key_path)


def _symmetric(stacked: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(stacked / 2 + stacked.transpose(0, 2, 1) / 2, dtype=np.float64)


def _matrix(value: Any, path: str) -> NDArray[np.float64]:
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(row, (list, tuple)) for row in value):
        raise SpecError(f"{path} must be a square matrix (a list of rows), got {shown(value)}", path)
    lengths = {len(row) for row in value}
    if lengths != {len(value)}:
        counts = ", ".join(str(length) for length in sorted(lengths))
        raise SpecError(f"{path} must be a square matrix, got {len(value)} rows of {counts} numbers", path)
    return np.array([[number(item, f"{path}.{i}.{j}") for j, item in enumerate(row)] for i, row in enumerate(value)])
