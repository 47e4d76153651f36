"""The time that a study's rounds would take on a network and with computers of your choice, from stored counters.

    time = slowest_examples · flops_per_example · (1 + stragglers · H_M) / compute
         + exchanges · latency  +  8 · (bytes_up + bytes_down) / (M · bandwidth)

The M clients of a round work at the same time and each has a link of its own, so that a round waits for the client with
the most work (`slowest_examples`), and every client sends and receives an M-th of the bytes. Where stragglers are
dropped, only the others send, each an equal share of bytes_up. Sending and computing do not overlap. The server's own
work takes no time.

With a ring of K computers a client, R = K M in all, this is appendix A of "Communication-Efficient Language Model
Training Scales Reliably and Robustly: Scaling Laws for DiLoCo" (Charles et al. 2025), where a client is a datacentre
whose computers share each batch, and models are reduced around rings instead of by a server:

    slowest_examples · flops_per_example / (K compute)                    6 N D / (R Q)
    + gradients / M · (2 · 8 model_bytes (1 - 1/K) / bandwidth_0 + latency_0)  (2 N (1 - M/R) / W_0 + ε_0) T,  if K > 1
    + exchanges · latency + 8 (bytes_up + bytes_down) (1 - 1/R) / (M · bandwidth)  (2 N (1 - 1/R) / W_1 + ε_1) T / H

With an overlap, each exchange may be sent during this share of the computation of one local step, and only the rest
takes time: 2/3 is about the backward pass, at the end of which all gradients are known. Appendix A has no overlap.
If a round with a small fragment needs less than this share, the remainder does not hide another round's exchange.

Stragglers: in every exchange each client's computation takes 1 + stragglers · E times as long, with E independent and
exponential with mean 1. The slowest of M takes 1 + stragglers · H_M times as long in the mean, H_M = 1 + 1/2 + ... 1/M.
Source: the shifted exponential of "Speeding Up Distributed Machine Learning Using Codes" (Lee et al. 2018).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from driftline.errors import InvalidSpec
from driftline.results.curves import Array, TrialCurve, finite
from trainers import COSTS, shown

COUNTERS = ("exchanges", "bytes_up", "bytes_down", "slowest_examples")
"""The columns that modelled time is computed from."""

GRADIENTS = "client_gradients"
"""A further column that modelled time needs with a ring or an overlap."""
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_NUMBER = r"(inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*"


@dataclass(frozen=True)
class Link:
    """The link between each client and the server.

    Attributes:
        bandwidth: Bits a second, above 0; may be infinite.
        latency: Seconds that an exchange (down and up) takes besides sending.
    """

    bandwidth: float
    latency: float

    @classmethod
    def parse(cls, text: str, name: str = "network") -> Link:
        """Reads ``10Gbit,10ms``.

        Args:
            text: Bandwidth and latency.
            name: Name of the setting, for errors.

        Raises:
            InvalidSpec: The text has another form.

        Examples:
            >>> Link.parse("10Gbit,10ms")
            Link(bandwidth=10000000000.0, latency=0.01)
            >>> Link.parse("infbit, 0s")
            Link(bandwidth=inf, latency=0.0)
        """
        match = re.fullmatch(rf"\s*{_NUMBER}([kmgt]?)bit(?:/s)?\s*,\s*{_NUMBER}(s|ms|us)\s*", str(text), re.IGNORECASE)
        bandwidth = float(match[1]) * _PREFIXES[match[2].lower()] if match else 0.0
        latency = float(match[3]) * _SECONDS[match[4].lower()] if match else math.inf
        if not bandwidth > 0 or not math.isfinite(latency):
            raise InvalidSpec(
                name, f"must be a bandwidth above 0 and a latency, such as 10Gbit,10ms, got {shown(text)}"
            )
        return cls(bandwidth, latency)


@dataclass(frozen=True)
class Ring:
    """The computers of each client, which share its batches.

    Attributes:
        computers: K, at least 1.
        link: The network between them.
    """

    computers: int
    link: Link

    @classmethod
    def parse(cls, text: str) -> Ring:
        """Reads ``8,400Gbit,1ms``.

        Raises:
            InvalidSpec: The text has another form.

        Examples:
            >>> Ring.parse("8,400Gbit,1ms").computers
            8
        """
        number, _, link = str(text).partition(",")
        if not re.fullmatch(r"\s*[1-9]\d{0,8}\s*", number):
            raise InvalidSpec("ring", f"must be computers and their network, such as 8,400Gbit,1ms, got {shown(text)}")
        return cls(int(number), Link.parse(link, "ring"))


@dataclass(frozen=True)
class Time:
    """Modelled time as the cost of a result: ``job.frontier(cost=Time("10Gbit,10ms", "300GFLOPS"))``.

    Attributes:
        network: Bandwidth and latency of each client's link: ``10Gbit,10ms``.
        compute: Speed of each client's computer: ``300GFLOPS``.
        stragglers: Mean share by which chance slows a client's computation down; 0 is none.
        flops_per_example: Operations of one example's gradient; None takes those stored with the study.
        ring: Computers of each client that share its batches, and their network: ``8,400Gbit,1ms``; all computers then
            reduce models around rings. None is one computer a client, and a server.
        overlap: Share of a local step's computation during which an exchange may be sent; 0 is none.

    Raises:
        InvalidSpec: A value has another form.
    """

    network: str
    compute: str
    stragglers: float = 0.0
    flops_per_example: float | None = None
    ring: str | None = None
    overlap: float = 0.0

    def __post_init__(self) -> None:
        Link.parse(self.network)
        speed(self.compute)
        if self.ring is not None:
            Ring.parse(self.ring)
        for name, least in (("stragglers", "at least 0"), ("flops_per_example", "above 0"), ("overlap", "at least 0")):
            value = getattr(self, name)
            if value is None and name == "flops_per_example":
                continue
            real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not real or value < 0 or (value == 0 and name == "flops_per_example"):
                raise InvalidSpec(name, f"must be a number, {least}, got {shown(value)}")

    def __str__(self) -> str:
        more = {"stragglers": self.stragglers, "overlap": self.overlap}
        ring = [] if self.ring is None else [f"ring {self.ring}"]
        return "; ".join([self.network, self.compute, *ring, *(f"{name} {x:g}" for name, x in more.items() if x)])

    def to_json(self) -> dict[str, Any]:
        """The attributes; ring and overlap only if they are given."""
        return {name: value for name, value in asdict(self).items() if value or name not in ("ring", "overlap")}

    def priced(self, curves: Sequence[TrialCurve]) -> tuple[Time, tuple[TrialCurve, ...]]:
        """This cost with the operations stored in the study, and the curves with modelled seconds among their columns.

        Raises:
            InvalidSpec: A trial did not count what is needed, or the operations are neither given nor stored.
        """
        for curve in curves:
            self._require_counters(curve)
        time = self._with_operations([curve.plan for curve in curves if curve.rounds.size])
        return time, tuple(
            replace(curve, columns={**curve.columns, COSTS["time"].counters[0]: time._seconds(curve)}, _cache={})
            if curve.rounds.size
            else curve
            for curve in curves
        )

    def _with_operations(self, plans: Sequence[Mapping[str, Any]]) -> Time:
        stored = {plan.get("flops_per_example") for plan in plans}
        if self.flops_per_example is not None or not stored:
            return self
        if len(stored) > 1 or None in stored:
            raise InvalidSpec(
                "flops_per_example",
                "must be given (--flops-per-example): the operations of one example's gradient, forward and backward, "
                f"are {'not stored with this study' if None in stored else 'not the same in all its trials'}",
            )
        return replace(self, flops_per_example=stored.pop())

    def _seconds(self, curve: TrialCurve) -> Array:
        counters = {name: finite(curve.columns[name]) for name in self._counters}
        plan = curve.plan
        clients, size = int(plan["clients_per_round"]), float(plan.get("model_bytes") or 0)
        senders = int(plan.get("senders_per_round") or clients)
        if not self.overlap:
            return modelled_seconds(counters, self, clients, size, senders)
        per_round = {name: np.diff(values, prepend=0) for name, values in counters.items()}
        return np.cumsum(modelled_seconds(per_round, self, clients, size, senders))

    @property
    def _counters(self) -> tuple[str, ...]:
        return (*COUNTERS, GRADIENTS) if self.ring or self.overlap else COUNTERS

    def _require_counters(self, curve: TrialCurve) -> None:
        if not curve.rounds.size:
            return
        lacking = [f"report {name}" for name in self._counters if not curve.counts(name)]
        stored = {"clients_per_round": "its clients per round", "model_bytes": "its model's size"}
        needed = stored if self.ring else ["clients_per_round"]
        lacking += [f"store {stored[name]}" for name in needed if not curve.plan.get(name)]
        if lacking:
            raise InvalidSpec(
                "cost", f"trial {curve.trial} must {lacking[0]} for cost=time: run the study again with this version"
            )


def modelled_seconds(
    counters: Mapping[str, Array], time: Time, clients: int, model_bytes: float = 0.0, senders: int | None = None
) -> Array:
    """The formula of this module, for counters of any shape.

    Args:
        counters: Each of `COUNTERS`, counted from the start; with a ring or an overlap `GRADIENTS` as well.
        time: The model, with its operations.
        clients: M, clients of a round.
        model_bytes: Bytes of one model; needed with a ring.
        senders: Clients of a round whose answers are not dropped; None is all.

    Examples:
        >>> time = Time("8Mbit,10ms", "1GFLOPS", stragglers=1.0, flops_per_example=1e6)
        >>> counters = {"exchanges": 1.0, "bytes_up": 1e6, "bytes_down": 1e6, "slowest_examples": 100.0}
        >>> round(float(modelled_seconds(counters, time, clients=2)), 3)
        1.26
    """
    network = Link.parse(time.network)
    work = counters["slowest_examples"] * ((time.flops_per_example or 0.0) * slowdown(time.stragglers, clients))
    sent = (counters["bytes_up"] * (clients / (senders or clients)) + counters["bytes_down"]) * (8.0 / clients)
    computation, inside = np.asarray(work / speed(time.compute)), np.zeros(())
    if time.ring is not None:
        ring = Ring.parse(time.ring)
        computation = computation / ring.computers
        sent = sent * (1 - 1 / (ring.computers * clients))
        inside = counters[GRADIENTS] / clients * _reduced(ring, 8 * model_bytes)
    exchanged = counters["exchanges"] * network.latency + sent / network.bandwidth
    if time.overlap:
        steps = np.maximum(counters[GRADIENTS] / clients, 1)
        exchanged = np.maximum(exchanged - time.overlap * computation * counters["exchanges"] / steps, 0)
    return np.asarray(computation + inside + exchanged)


def _reduced(ring: Ring, bits: float) -> float:
    """Seconds in which a client's computers reduce a gradient of this many bits around their ring."""
    if ring.computers == 1:
        return 0.0
    return 2 * bits * (1 - 1 / ring.computers) / ring.link.bandwidth + ring.link.latency


def slowdown(stragglers: float, clients: int) -> float:
    """How much longer the slowest of several clients computes on average: 1 + stragglers · H_M.

    Examples:
        >>> slowdown(0.0, 100), slowdown(0.5, 1), slowdown(0.5, 4)
        (1.0, 1.5, 2.0416666666666665)
    """
    return 1.0 + stragglers * float(np.sum(1.0 / np.arange(1, clients + 1))) if stragglers else 1.0


def speed(text: str) -> float:
    """Operations a second.

    Raises:
        InvalidSpec: The text has another form.

    Examples:
        >>> speed("300GFLOPS"), speed("1.5 TFLOP/s")
        (300000000000.0, 1500000000000.0)
    """
    match = re.fullmatch(rf"\s*{_NUMBER}([kmgtpe]?)(?:FLOPS|FLOP/s)\s*", str(text), re.IGNORECASE)
    value = float(match[1]) * _PREFIXES[match[2].lower()] if match else 0.0
    if not value > 0:
        raise InvalidSpec("compute", f"must be a speed above 0, such as 300GFLOPS, got {shown(text)}")
    return value
