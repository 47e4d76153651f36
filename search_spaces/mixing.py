"""Spaces that the methods of mixed federated learning share: ranges, tied rates, and the paper's configurations.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", appendix C.2: delta_lr 1,
merge_lr 1, central_lr equal to client_lr (both are the defaults with delta_lr 1), and as many central steps as local
ones. The paper sweeps the rate for the fastest that does not diverge, but does not print the values. By default,
central_batch_size follows the paper's rule: as many examples as all clients have in a step (one-way transfer: in a
round).
"""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space, fixed

ONE_WAY = "one_way_transfer"
TWO_WAY = "two_way_transfer"
COHORT = {"clients_per_round": 100, "smile_batch_size": 5, "language_batch_size": 8, "movies_batch_size": 16}
"""Cohort and batch sizes of the paper's three tasks; set them in the study."""


def default() -> Space:
    """client_lr and server_lr on a log scale, and 1 to 32 local steps in powers of two."""
    return {
        "client_lr": rates.moving_client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }


def tied(local_steps: int = 10) -> Space:
    """The authors' tied rates: client_lr on a log scale, delta_lr 1, everything else by default.

    Args:
        local_steps: 2, 16 and 10 in the paper's three tasks.
    """
    return {"client_lr": rates.moving_client_lr(), "delta_lr": fixed(1.0), "local_steps": fixed(local_steps)}


def smile(method: str) -> Space:
    """Smile classification (appendix C.2.1): one configuration.

    Args:
        method: Its name; one-way transfer uses central batches as large as a whole round's.
    """
    size = 1000 if method == ONE_WAY else 500
    return {**_setting(0.01, 2, 0.5), "central_batch_size": fixed(size)}


def language(method: str) -> Space:
    """Next-character prediction (appendix C.2.2): one configuration; two-way transfer uses half the rate.

    One-way transfer's central batch is half of what the rule gives, as in the paper.

    Args:
        method: Its name.
    """
    size = 6400 if method == ONE_WAY else 800
    rate = 1.0 if method == TWO_WAY else 2.0
    return {**_setting(rate, 16, 0.73), "central_batch_size": fixed(size)}


def movies() -> Space:
    """Next-movie recommendation (appendix C.2.3): one configuration; the server's loss needs no data."""
    return _setting(0.5, 10, 0.5)


def movies_adam() -> Space:
    """`movies` with Adam on the server and server_lr 0.01 (appendix C.4.4), for one-way transfer and the baseline."""
    return {key: value for key, value in movies().items() if key != "delta_lr"} | {"server_lr": fixed(0.01)}


def central_batches() -> Space:
    """Sweep of the central batch (appendix C.4.1) on the smile task; only 25 and 1000 are the paper's values."""
    return {**_setting(0.01, 2, 0.5), "central_batch_size": Choice((5, 25, 100, 500, 1000))}


def steps_against_rate(product: float = 0.02, steps: tuple[int, ...] = (1, 2, 4, 8, 16)) -> list[dict[str, float]]:
    """Configurations of equal client_lr * local_steps (appendix C.4.2).

    In the paper, more steps at a lower rate never hurt.

    Args:
        product: client_lr * local_steps; 0.02 is the smile task's.
        steps: Values of local_steps; the paper shows its own in figures only.

    Examples:
        >>> steps_against_rate()[1]
        {'client_lr': 0.01, 'delta_lr': 1.0, 'local_steps': 2}
    """
    return [{"client_lr": product / count, "delta_lr": 1.0, "local_steps": count} for count in steps]


def wide(branch: bool) -> Space:
    """A wide space: rates, steps and central batches; with a branch of the server also its rate and the merge.

    Args:
        branch: Whether the method has a branch of the server (parallel training, two-way transfer).
    """
    space: Space = {
        "client_lr": Float(1e-3, 10.0, log=True),
        "delta_lr": Choice((1.0, 10.0)),
        "local_steps": Choice((1, 2, 5, 10, 16)),
        "central_batch_size": Choice((5, 25, 100, 500, 1000)),
    }
    if branch:
        space |= {"central_lr": Float(1e-3, 10.0, log=True), "merge_by": Choice(("sum", "mean"))}
    return space


def _setting(client_lr: float, local_steps: int, federated_weight: float) -> Space:
    return {
        "client_lr": fixed(client_lr),
        "delta_lr": fixed(1.0),
        "local_steps": fixed(local_steps),
        "federated_weight": fixed(federated_weight),
    }
