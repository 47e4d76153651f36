"""The trials whose curves must stay as they are: a fixed list.

    METHOD/alone/DTYPE, METHOD/pack/DTYPE, METHOD/resumed/DTYPE       every method, in both precisions
    covering/000/DTYPE, ...                                           the rows of covering.csv
    variant/WHAT                                                      settings that change what a method computes
    oracle/MODEL/ORACLE/DTYPE                                         every way to compute gradients
    data/TASK                                                         tasks whose data is not part of the repository

The list never follows the code: what is added later has recordings of its own.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Document = dict[str, Any]

ROUNDS = 8
STOP = 4
DTYPES = ("float32", "float64")
COVERING = Path(__file__).with_name("covering.csv")
ARRAYS = "equality.npz"
"""File of the task npz, in the folder in which the cases are run; `write_arrays` makes it."""


@dataclass(frozen=True)
class Case:
    """One trial, or one pack of trials.

    Args:
        name: as above.
        document: a trial document.
        oracle: computes the gradients; None leaves the plan to the tree, for models that have one oracle alone.
        stop: round after which the pack goes on from a checkpoint; None never stops.
    """

    name: str
    document: Document
    oracle: str | None
    stop: int | None = None

    @property
    def needs_data(self) -> bool:
        """Whether its task reads files from DATA_DIR."""
        return self.name.startswith("data/")


@dataclass(frozen=True)
class Method:
    """A method with usual settings.

    Args:
        settings: of the first member.
        others: settings of two more members that differ in every hyperparameter that members may differ in.
        central: whether it trains on data of the server, too.
        one_client: whether it works with one client a round alone.
    """

    settings: Document
    others: tuple[Document, Document]
    central: bool = False
    one_client: bool = False


def _method(more: str = "", also: Document | None = None, **settings: Any) -> Method:
    """A method whose further members have smaller rates, other numbers of steps, weight decay and clipping."""
    others = []
    for turn, extra in ((1, {"weight_decay": 0.01}), (2, {"clip_norm": 0.5})):
        other = {
            name: value + turn if isinstance(value, int) else value * (1 - 0.2 * turn)
            for name, value in settings.items()
            if isinstance(value, (int, float))
        }
        kept = {name: value for name, value in extra.items() if name in more.split()}
        others.append({**other, **(also or {}).get(turn, {}), **kept})
    return Method(settings, (others[0], others[1]), "central" in more.split(), "one_client" in more.split())


_RATES = {"client_lr": 0.05, "server_lr": 0.05, "local_steps": 3}
_BOTH = "weight_decay clip_norm"
_MIXED = {**_RATES, "federated_weight": 0.6}
METHODS: dict[str, Method] = {
    "aligned_feddyn": _method(_BOTH, **_RATES, prox=0.5, displacement=0.1),
    "aligned_linear_scaling": _method(_BOTH, client_lr=0.05, server_lr=0.02),
    "all_on_client": _method("central clip_norm", **_MIXED),
    "fedavg": _method(_BOTH, **_RATES),
    "feddyn": _method(_BOTH, **_RATES, prox=0.5),
    "fedexp": _method(_BOTH, **_RATES, epsilon=0.001),
    "fedga": _method(_BOTH, **_RATES, displacement=0.1, prox=0.2),
    "fednova": _method(_BOTH, **_RATES, prox=0.2),
    "fedprox": _method(_BOTH, **_RATES, prox=0.5),
    "fedsgd": _method(_BOTH, server_lr=0.05, local_steps=2),
    "fomaml": _method(_BOTH, **_RATES, prox=0.2),
    "gradalign": _method(_BOTH, server_lr=0.05, displacement=0.1),
    "linear_scaling": _method(_BOTH, server_lr=0.02),
    "local_sgd": _method(_BOTH, client_lr=0.05, local_steps=3),
    "local_update": _method(
        _BOTH,
        {1: {"gradient_weights": [0.5, 2.0]}, 2: {"gradient_weights": [0.0, 1.0, 0.5, 1.0]}},
        client_lr=0.05,
        server_lr=0.05,
        gradient_weights=[1.0, 0.5, 2.0],
        prox=0.2,
    ),
    "lookahead": _method(f"{_BOTH} one_client", **_RATES),
    "maml": _method("weight_decay", **_RATES, prox=0.2),
    "mass": _method(_BOTH, client_lr=0.05, local_steps=3, momentum=0.6, compensation_lr=0.01),
    "mime": _method(_BOTH, **_RATES, momentum=0.8),
    "mimelite": _method(_BOTH, **_RATES, momentum=0.8),
    "minibatch_prox": _method(_BOTH, **_RATES, prox=0.5),
    "minibatch_sgd": _method(_BOTH, server_lr=0.05),
    "one_way_transfer": _method("central clip_norm", **_MIXED),
    "parallel_training": _method("central clip_norm", **_MIXED, central_lr=0.04, central_steps=2, merge_lr=0.9),
    "pooled_training": _method("central", **_MIXED),
    "regularized_gd": _method("weight_decay", server_lr=0.05, misalignment_weight=0.1),
    "reptile": _method(_BOTH, **_RATES),
    "scaffold": _method(_BOTH, **_RATES, correction=1.0),
    "two_way_transfer": _method("central clip_norm", **_MIXED, central_lr=0.04, central_steps=2, merge_lr=0.9),
}

SERVERS: dict[str, Document] = {
    "sgd": {"name": "sgd"},
    "heavy_ball": {"name": "sgd", "momentum": 0.9},
    "nesterov": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "adam": {"name": "adam", "epsilon": 0.001},
    "yogi": {"name": "yogi", "epsilon": 0.001, "initial_accumulator": 0.000001},
    "adagrad": {"name": "adagrad", "beta1": 0.5, "epsilon": 0.001},
}

CLIENTS: dict[str, Document] = {
    "sgd": {"name": "sgd"},
    "momentum": {"name": "momentum", "momentum": 0.8},
    "nesterov": {"name": "nesterov"},
    "adagrad": {"name": "adagrad", "epsilon": 0.001},
    "rmsprop": {"name": "rmsprop", "epsilon": 0.001},
    "adam": {"name": "adam", "beta2": 0.99, "epsilon": 0.001},
    "adamw": {"name": "adamw", "epsilon": 0.001},
}

_EAGER = {"window": 1, "patience": 1, "cooldown": 1, "min_delta": 0.5, "client_decay": 0.5, "server_decay": 0.7}
SCHEDULES: dict[str, Document] = {
    "constant": {"name": "constant"},
    "plateau": {"name": "plateau", **_EAGER},
    "theory_1_over_t": {"name": "theory_1_over_t", "strong_convexity": 1.0, "smoothness": 3.0},
}

_HESSIAN = [[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 3.0]]
TASKS: dict[str, Document] = {
    "digits": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}},
    "npz": {"name": "npz", "path": ARRAYS},
    "quadratic": {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3, "gradient_noise": 0.1},
    "linear_regression": {"name": "linear_regression", "clients": 6, "examples": 20, "strong_convexity": 0.1},
}
_CENTRAL = {"quadratic": {"hessian": _HESSIAN, "center": [0.5, -0.5, 0.25]}}


@dataclass(frozen=True)
class Model:
    """A model with the oracle that computes its gradients.

    Args:
        settings: as a task names it.
        oracle: name of the oracle.
        batch_size: examples a local step; None is all of a client's.
        own: the task that has this model and no other, and therefore does not name it.
        targets: array of the task npz that it learns.
    """

    settings: Any
    oracle: str
    batch_size: int | None = 5
    own: str = ""
    targets: str = "y"


_MLP = {"name": "mlp", "hidden": [6], "dropout": 0.2}
_CNN = {"name": "cnn", "filters": [2], "kernel": 3, "dense": 5, "dropout": 0.2, "crop": 1, "flip": True}
MODELS: dict[str, Model] = {
    "softmax": Model("softmax", "stacked"),
    "softmax_full_batch": Model("softmax", "example_space", None),
    "mlp": Model(_MLP, "stacked"),
    "mlp_loop": Model(_MLP, "loop"),
    "cnn": Model(_CNN, "loop"),
    "linear": Model("linear", "stacked", own="linear_regression", targets="value"),
    "linear_full_batch": Model("linear", "example_space", None, own="linear_regression", targets="value"),
    "quadratic": Model("quadratic", "closed_form", own="quadratic"),
}


def document(
    method: str = "fedavg",
    server: str = "sgd",
    client: str = "sgd",
    schedule: str = "constant",
    task: str = "digits",
    model: str = "softmax",
    **changes: Any,
) -> Document:
    """A trial document; it may be illegal.

    Args:
        method: a key of METHODS; the next five likewise of SERVERS, CLIENTS, SCHEDULES, TASKS and MODELS.
        changes: further keys of the document, or others.
    """
    chosen = MODELS[model]
    given: Document = dict(TASKS[task])
    if chosen.own != task:
        given["model"] = chosen.settings
    if task == "npz":
        given["targets"] = chosen.targets
    if METHODS[method].central:
        given["central"] = _CENTRAL.get(task, {"fraction": 0.1})
    clients = {} if client == "sgd" else {"client": CLIENTS[client]}
    return {
        "task": given,
        "method": {"name": method, **METHODS[method].settings},
        **clients,
        "server": SERVERS[server],
        "schedule": SCHEDULES[schedule],
        "clients_per_round": 1 if METHODS[method].one_client else 4,
        "batch_size": chosen.batch_size,
        "rounds": ROUNDS,
        "seed": 5,
        "dtype": "float64",
        "eval_every": 2,
        "report": ["params"],
        **changes,
    }


def covering() -> list[dict[str, str]]:
    """The rows of covering.csv."""
    with COVERING.open(newline="") as file:
        return list(csv.DictReader(file))


def cases() -> list[Case]:
    """All cases, in a fixed order; names are unique."""
    return [*_methods(), *_covering(), *_variants(), *_oracles(), *_data()]


def _methods() -> Iterator[Case]:
    for name, method in METHODS.items():
        members = [{}, *method.others]
        for dtype in DTYPES:
            yield Case(f"{name}/alone/{dtype}", document(name, dtype=dtype), "stacked")
            yield Case(f"{name}/pack/{dtype}", document(name, dtype=dtype, members=members), "stacked")
            given = document(name, "adam", schedule="plateau", dtype=dtype, members=members)
            yield Case(f"{name}/resumed/{dtype}", given, "stacked", STOP)


def _covering() -> Iterator[Case]:
    for number, row in enumerate(covering()):
        for dtype in DTYPES:
            members = [{}, METHODS[row["method"]].others[number % 2]]
            given = document(**row, dtype=dtype, members=members, seed=number)
            yield Case(f"covering/{number:03d}/{dtype}", given, MODELS[row["model"]].oracle)


_NATURAL = {**TASKS["npz"], "model": "softmax"}
_REPORTS = ["params", "full_loss", "client_accuracy", "misalignment", "difference_norm", "cohort_misalignment"]
_SETTINGS: dict[str, tuple[str, list[Document]]] = {
    "local_epochs": ("fedavg", [{"local_steps": None, "local_epochs": 2}]),
    "client_lr_0": ("fedprox", [{"client_lr": 0.0}]),
    "tied": ("fedavg", [{"server_lr": None, "tied": True}]),
    "delta_lr": ("fedavg", [{"server_lr": None, "delta_lr": 0.8}]),
    "decay_and_clipping": (
        "fedavg",
        [{"client": {"name": name}, "weight_decay": 0.1, "clip_norm": 0.3} for name in CLIENTS],
    ),
    "form": (
        "fedga",
        [{"displacement_form": "each_step"}, {"displacement_source": "batch"}, {"reuse_mean_gradient": True}],
    ),
    "steps": ("fednova", [{"effective_steps": 2.5}, {"client": {"name": "momentum"}, "effective_steps": 2.0}]),
    "source": ("gradalign", [{"displacement_source": "full"}]),
    "unbiased": ("maml", [{"unbiased": True}]),
    "sync": (
        "mass",
        [{"sync": name} for name in ("momentum_half", "momentum_literal", "momentum_wu", "avg_v", "reset")],
    ),
    "form_three": (
        "mass",
        [
            {"momentum": None, "compensation_lr": None, "mixing": 0.3, "auxiliary_lr": 0.1},
            {"momentum": None, "compensation_lr": None, "mixing": 0.3, "batch_statistical_condition_number": 1.5},
        ],
    ),
    "gradients": ("mime", [{"gradient_source": "batch"}, {"local_steps": None, "local_epochs": 1}]),
    "gradients_lite": ("mimelite", [{"gradient_source": "batch"}]),
    "central_batch": ("one_way_transfer", [{"central_batch_size": 7}, {"client": {"name": "adam"}, "clip_norm": 0.5}]),
    "branches": (
        "parallel_training",
        [
            {"merge_by": "mean"},
            {"central_lr": None, "central_steps": None, "central_batch_size": 7},
            {"central": {"name": "sgd", "momentum": 0.8}, "merge": {"name": "sgd", "momentum": 0.5}},
            {"central": {"name": "adam", "beta1": 0.8, "epsilon": 0.001}},
            {"central": {"name": "yogi"}, "merge": {"name": "adagrad", "epsilon": 0.001}, "merge_lr": 0.05},
            {"client": {"name": "momentum"}, "merge": {"name": "adam", "beta1": 0.5}, "merge_lr": 0.05},
            {"local_steps": None, "local_epochs": 1},
        ],
    ),
    "transfers": (
        "two_way_transfer",
        [
            {"warm_start": True},
            {"merge_by": "mean", "client": {"name": "adam"}, "clip_norm": 0.5},
            {"central": {"name": "adagrad"}, "merge": {"name": "yogi"}, "merge_lr": 0.05},
        ],
    ),
    "pooled": ("pooled_training", [{"central_batch_size": 7}]),
    "sum": ("all_on_client", [{"central_batch_size": 7, "client": {"name": "nesterov"}}]),
    "regularized": ("regularized_gd", [{"displacement_source": "full"}]),
    "variates": (
        "scaffold",
        [
            {"displacement_source": "batch"},
            {"variates": "stored"},
            {"variates": "stored", "variate_update": "gradient", "weight_decay": 0.1},
            {"variates": "stored", "variate_update": "gradient", "displacement_source": "batch"},
            {"variates": "stored", "client": {"name": "adamw"}, "weight_decay": 0.1},
        ],
    ),
}
_DOCUMENTS: dict[str, tuple[str, list[Document]]] = {
    "trial": (
        "fedavg",
        [
            {"batching": "with_replacement"},
            {"batching": "shuffled"},
            {"weighting": "examples"},
            {"loss_data": "full"},
            {"clients_per_round": None},
            {"rounds": 30, "eval_every": 3},
            {"adaptation": {"steps": [0, 1, 3], "client_lr": 0.1}},
            {"adaptation": {"steps": [2], "support": 0.3}},
            {"server": {"name": "adam", "bias_correction": False, "initial_accumulator": 0.01}},
            {"server": {"name": "yogi", "bias_correction": False}},
            {"schedule": {**SCHEDULES["plateau"], "decay_mode": "reference"}},
            {"schedule": {**SCHEDULES["plateau"], "monitor": "accuracy"}},
            {"schedule": {"name": "plateau", "window": 2, "min_client_lr": 0.04, "min_server_lr": 0.045}},
            {"members": [{}, {"client_lr": 1e3, "server_lr": 1e9}, {"client_lr": 0.2, "local_steps": 5}]},
        ],
    ),
    "reports": ("fedavg", [{"task": _NATURAL, "report": [*_REPORTS, "drift", "overhead"]}]),
    "reports_fedga": ("fedga", [{"task": _NATURAL, "report": [*_REPORTS, "displacement_ratio", "drift"]}]),
    "reports_scaffold": ("scaffold", [{"report": ["drift", "overhead", "params"]}]),
    "reports_mixed": ("two_way_transfer", [{"report": ["dissimilarity", "drift", "overhead"]}]),
    "reports_mass": ("mass", [{"report": ["lyapunov", "params"], "task": TASKS["linear_regression"]}]),
    "estimate": (
        "mass",
        [
            {"task": TASKS["linear_regression"], "method": {"name": "mass", "local_steps": 3, "constants": constants}}
            for constants in ("estimate", "estimate_by_client")
        ],
    ),
    "partition": (
        "fedprox",
        [
            {"task": {"name": "digits", "clients": 8, "partition": "iid"}},
            {"task": {"name": "digits", "clients": 10, "partition": "by_label", "split_seed": 3}},
            {"task": {"name": "digits", "clients": 8, "partition": {"classes_per_client": 2}}},
            {"task": {"name": "npz", "path": ARRAYS, "test": "held_out"}},
            {"task": {"name": "npz", "path": ARRAYS, "clients": 5, "partition": {"dirichlet": 1.0}}},
        ],
    ),
    "regression": (
        "fedavg",
        [
            {"task": {**TASKS["linear_regression"], "orientation": "random", "label_noise": 0.1}},
            {"task": {**TASKS["linear_regression"], "client_weights": [0.1, 0.1, 0.1, 0.2, 0.2, 0.3]}},
        ],
    ),
}
_QUADRATICS: list[Document] = [
    {"task": {"name": "quadratic", "problem": "two_clients"}, "clients_per_round": None, "init": [0.25]},
    {"task": {"name": "quadratic", "problem": "continuum", "clients": 20}, "init": [2.0]},
    {
        "task": {
            "name": "quadratic",
            "problem": "worst_case",
            "smoothness": 8.0,
            "client_lr": 0.05,
            "gradient_weights": [1, 1, 1],
        },
        "clients_per_round": None,
        "init": [3, 3, 3],
    },
    {
        "task": {"name": "quadratic", "hessians": [_HESSIAN] * 3, "centers": [[1, 0, 0], [0, 1, 0], [0, 0, 2]]},
        "clients_per_round": 2,
        "eval_every": "auto",
        "rounds": 40,
    },
]


def _variants() -> Iterator[Case]:
    for what, (method, variants) in _SETTINGS.items():
        for number, settings in enumerate(variants):
            given = document(
                method, members=[{}, {"server_lr": 0.03} if "tied" not in settings else {"client_lr": 0.03}]
            )
            parts = {key: value for key, value in settings.items() if isinstance(value, dict)}
            rest = {key: value for key, value in settings.items() if key not in parts}
            given |= {"method": {**given["method"], **rest}, **parts}
            if method == "mass" or "delta_lr" in settings:
                given["members"] = [{}]
            yield Case(f"variant/{method}/{what}/{number}", given, "stacked")
    for what, (method, variants) in _DOCUMENTS.items():
        for number, changes in enumerate(variants):
            yield Case(f"variant/{method}/{what}/{number}", {**document(method), **changes}, "stacked")
    for number, changes in enumerate(_QUADRATICS):
        given = {**document("fedprox", "nesterov", task="quadratic", model="quadratic"), **changes}
        yield Case(f"variant/fedprox/quadratic/{number}", given, None if number % 2 else "closed_form")


def _oracles() -> Iterator[Case]:
    oracles_of = {
        "softmax": "stacked example_space autograd",
        "mlp": "stacked loop vmap autograd",
        "cnn": "loop vmap autograd",
    }
    for model, oracles in oracles_of.items():
        for oracle in oracles.split():
            for dtype in DTYPES:
                size = None if oracle == "example_space" else 5
                given = document(
                    "scaffold", model=model, dtype=dtype, batch_size=size, members=[{}, {"local_steps": 5}]
                )
                yield Case(f"oracle/{model}/{oracle}/{dtype}", given, oracle)


def _data() -> Iterator[Case]:
    tasks: dict[str, tuple[Document, str]] = {
        "mnist_by_writer": ({"writers": 8, "test_writers": 4}, "softmax"),
        "fashion": ({"clients": 6, "partition": {"dirichlet": 0.5}}, "mlp"),
        "cifar": ({"clients": 6, "partition": {"classes_per_client": 3}}, "cnn"),
    }
    for task, (settings, model) in tasks.items():
        given = document("fedavg", model=model, dtype="float32", rounds=4)
        given["task"] = {"name": task, **settings, "model": MODELS[model].settings}
        yield Case(f"data/{task}", given, MODELS[model].oracle)


def write_arrays(folder: Path) -> None:
    """Writes the file of the task npz: small pictures of three classes and a number each, of seven clients."""
    generator = np.random.default_rng(0)
    count = 140
    client = generator.integers(0, 7, count)
    classes = generator.integers(0, 3, count)
    shift = 0.5 * classes + 0.2 * client
    pictures = 0.4 * (generator.normal(size=(count, 1, 4, 4)) + shift[:, None, None, None])
    value = pictures.mean((1, 2, 3)) + 0.1 * generator.normal(size=count)
    held_out = generator.random(count) < 0.2
    arrays = {"x": pictures, "y": classes, "value": value, "client": client, "held_out": held_out}
    np.savez(folder / ARRAYS, **arrays)
