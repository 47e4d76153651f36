"""Finds the largest client_lr that does not diverge, from which automatic decay starts.

    python benchmarks/largest_client_lr.py trial.json

With decay, a large client_lr is fast at first and is lowered when it no longer helps. So client_lr is not tuned but
taken as large as possible: the largest candidate with which training does not diverge for at least one server_lr. Of
these server_lr, the one with the smallest mean training loss over the last 100 rounds is taken.

Source: "On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), section 9.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainers import SpecError, offered, shown
from trainers.registry import methods
from trainers.run import read, run

CANDIDATES = (100.0, 10.0, 1.0, 0.1, 0.01)
"""The client_lr of the paper."""
SERVER_LRS = tuple(10 ** (exponent / 2) for exponent in range(-6, 3))
"""The server_lr of the paper: 10^-3, 10^-2.5, ..., 10."""
SCORE_WINDOW = 100
"""Number of last rounds whose mean training loss is compared."""


@dataclass(frozen=True)
class Tried:
    """The outcome of one client_lr.

    Args:
        client_lr: The rate that was tried.
        diverged: Number of server_lr with which it diverged.
        server_lr: The best server_lr with which it did not diverge; None if it always did.
        train_loss: Mean training loss over the last rounds with that server_lr.
    """

    client_lr: float
    diverged: int
    server_lr: float | None = None
    train_loss: float | None = None


def largest_client_lr(
    document: Mapping[str, Any],
    candidates: Sequence[float] = CANDIDATES,
    servers: Sequence[float] = SERVER_LRS,
    *,
    device: str = "auto",
) -> list[Tried]:
    """Trains with every candidate, the largest first, until one does not diverge.

    Args:
        document: A trial (trainers/trial/document.py) without members; its client_lr and server_lr are replaced. If it
            sets delta_lr or tied, or its method is always tied, only client_lr is replaced.
        candidates: The client_lr to try.
        servers: The server_lr to try with each; the paper's by default.
        device: A torch device, or "auto".

    Returns:
        The outcomes in the order tried; the last one is the answer if it has a train_loss.

    Raises:
        SpecError: The trial is invalid, or its method has no client_lr.
    """
    if document.get("members") is not None:
        raise SpecError("members must be left out: the rates to try become the members", "members")
    method = document.get("method")
    method = dict(method) if isinstance(method, Mapping) else {}
    method.pop("client_lr", None)
    alone = _given_its_server_lr(method)
    if not alone:
        method.pop("server_lr", None)
    asked = [None] if alone else list(servers)
    tried: list[Tried] = []
    for client_lr in sorted(set(candidates), reverse=True):
        rows = [{"client_lr": client_lr, **({} if rate is None else {"server_lr": rate})} for rate in asked]
        losses = _losses({**document, "method": method, "members": rows}, len(rows), device)
        kept = {index: loss for index, loss in enumerate(losses) if loss is not None}
        best = min(kept, key=lambda index: kept[index], default=None)
        tried.append(
            Tried(client_lr, len(rows) - len(kept))
            if best is None
            else Tried(client_lr, len(rows) - len(kept), asked[best], kept[best])
        )
        if best is not None:
            break
    return tried


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: prints a line of JSON for every client_lr tried; returns 1 if all of them diverged."""
    parser = argparse.ArgumentParser(
        description="Finds the largest client_lr that does not diverge with at least one server_lr.",
    )
    parser.add_argument("trial", metavar="TRIAL.json", help='a trial without members; "-" is standard input')
    parser.add_argument("--client-lrs", metavar="A,B,...", default=_text(CANDIDATES), help="client_lr to try")
    parser.add_argument("--server-lrs", metavar="A,B,...", default=_text(SERVER_LRS), help="server_lr to try with each")
    options = parser.parse_args(arguments)
    try:
        document = read(options.trial)
        if not isinstance(document, Mapping):
            raise SpecError("the trial must be an object")
        candidates = _numbers(options.client_lrs, "--client-lrs")
        tried = largest_client_lr(document, candidates, _numbers(options.server_lrs, "--server-lrs"))
    except SpecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for one in tried:
        print(json.dumps(asdict(one)))
    if len(tried) == 1 and tried[0].train_loss is not None:
        print(
            f"note: {tried[0].client_lr:g} is the largest client_lr that was tried, and it does not diverge: "
            "try larger ones with --client-lrs",
            file=sys.stderr,
        )
    return 0 if tried and tried[-1].train_loss is not None else 1


def _given_its_server_lr(method: Mapping[str, Any]) -> bool:
    """Whether server_lr follows from client_lr; SpecError for a method that is unknown or has no client_lr."""
    if "name" not in method:
        raise SpecError(f"method.name must be given: one of {', '.join(methods())}", "method.name")
    module = methods().find(method["name"], "method.name")
    if "client_lr" not in {item.name for item in offered(module)}:
        raise SpecError(
            f"method.name must name a method with a client_lr, got {method['name']}, which has none", "method.name"
        )
    return module.TIED or any(method.get(other) for other in ("delta_lr", "tied"))


def _losses(document: Mapping[str, Any], members: int, device: str) -> list[float | None]:
    """The mean training loss of each member over its last rounds; None where it diverged."""
    seen: list[list[float]] = [[] for _ in range(members)]
    diverged = [False] * members
    for line in run(document, device=device):
        diverged[line["member"]] |= line["diverged"]
        if line["train_loss"] is not None:
            seen[line["member"]].append(line["train_loss"])
    return [
        None if bad or not losses else math.fsum(losses[-SCORE_WINDOW:]) / len(losses[-SCORE_WINDOW:])
        for bad, losses in zip(diverged, seen, strict=True)
    ]


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError as error:
        raise SpecError(f"{option} must be numbers separated by commas, got {shown(text)}") from error


def _text(numbers: Sequence[float]) -> str:
    return ",".join(repr(number) for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
