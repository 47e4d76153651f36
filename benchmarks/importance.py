"""How often shares of importance are given to hyperparameters that change nothing, and to those that do.

    OMP_NUM_THREADS=1 python -m benchmarks.importance [--searches 200] [--trials 12 24 48 96] [--variances 30 0.8]

A simulated search draws five hyperparameters: three rates, a number of steps and one of three kinds. In searches of
the first line none changes the quality, which is normal noise of variance 1. In the others the first rates do: each
adds minus the squared distance to an optimum of its own, on the logarithmic axis, scaled to a variance in units of the
noise's. Printed are percentages of searches: any share given where there is nothing, and each rate that matters found.
"""

from __future__ import annotations

import argparse

import numpy as np

from driftline.results.importance import shares, values_of

RATES = ("first_lr", "second_lr", "third_lr")


def found(count: int, seed: int, variances: tuple[float, ...]) -> set[str]:
    """The hyperparameters to which a search of so many trials gives a share."""
    generator = np.random.default_rng([seed, count, len(variances)])
    rates = generator.uniform(-3, 1, size=(len(RATES), count))
    steps, kinds = generator.integers(1, 51, size=count).tolist(), generator.integers(3, size=count).tolist()
    trials = [
        {name: float(10**rate) for name, rate in zip(RATES, rates[:, number], strict=True)}
        | {"local_steps": steps[number], "kind": "abc"[kinds[number]]}
        for number in range(count)
    ]
    quality = generator.standard_normal(count)
    for rate, optimum, variance in zip(rates, generator.uniform(-3, 1, size=len(variances)), variances, strict=False):
        every = -((np.linspace(-3, 1, 1000) - optimum) ** 2)
        quality += np.sqrt(variance / every.var()) * -((rate - optimum) ** 2)
    hyperparameters = {name: values_of(name, trials, [()] * count) for name in trials[0]}
    given = shares(quality, {name: values for name, values in hyperparameters.items() if values is not None})
    return {name for name, share in given.items() if share is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--trials", type=int, nargs="+", default=[12, 24, 48, 96])
    parser.add_argument("--variances", type=float, nargs="+", default=[30, 0.8])
    arguments = parser.parse_args()
    print(f"percent of {arguments.searches} searches of  " + "".join(f"{count:>6}" for count in arguments.trials))
    rows: dict[str, list[int]] = {"any share where nothing matters": []}
    for count in arguments.trials:
        nothing = [found(count, seed, ()) for seed in range(arguments.searches)]
        some = [found(count, seed, tuple(arguments.variances)) for seed in range(arguments.searches)]
        rows["any share where nothing matters"].append(sum(bool(names) for names in nothing))
        for name, variance in zip(RATES, arguments.variances, strict=False):
            rows.setdefault(f"{name}, variance {variance:g}", []).append(sum(name in names for names in some))
        without = sum(bool(names - set(RATES[: len(arguments.variances)])) for names in some)
        rows.setdefault("any share beside those that matter", []).append(without)
    for text, counts in rows.items():
        print(f"{text:36}" + "".join(f"{round(100 * each / arguments.searches):>6}" for each in counts))


if __name__ == "__main__":
    main()
