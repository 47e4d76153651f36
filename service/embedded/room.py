"""Whether this computer has room for a study: CPU cores, GPUs and memory."""

from __future__ import annotations

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.cores import usable_cores
from service.gpus import machine_gpus
from trainers import SpecError, parse, round_bytes, total_memory

_COPIES = 3  # of a round's models in training: models, gradients and their sums


def require_room(study: Study, cores: int | None = None) -> None:
    """Checks, before Ray is started on this computer, that a pack will fit.

    Args:
        study: The study.
        cores: CPU cores that it uses; by default all that this process may use.

    Raises:
        InvalidSpec: There are fewer CPU cores or GPUs than a pack needs.
    """
    from service.driver.ray.capacity import Node, require

    gpu = study.resources.gpu
    gpus = 0.0
    if gpu not in ("auto", 0):
        gpus = _gpus(study, float(gpu))
    node = Node(float(cores or usable_cores()), gpus)
    require([node], study.resources.cpus, 0.0 if gpu == "auto" else float(gpu), study.resources.nodes)


def _gpus(study: Study, count: float) -> float:
    """GPUs of this computer that a study can use: for a program, which need not use this torch, all that Ray finds."""
    if study.program is not None:
        most = machine_gpus()
        return count if most is None else float(most)
    import torch

    return float(torch.cuda.device_count())


def require_own_ray(study: Study, address: str) -> None:
    """Refuses a program on a Ray cluster.

    Raises:
        InvalidSpec: The study has a program.
    """
    if study.program is not None:
        raise InvalidSpec("program", f"runs on this computer alone, got a Ray cluster at {address}: leave that out")


def memory_remark(study: Study) -> list[str]:
    """A remark if the models of a round may not fit into this computer's memory, without a GPU.

    Raises:
        InvalidSpec: The models cannot fit.
    """
    if study.program is not None:
        return []
    total, gpu = total_memory(), study.resources.gpu
    if total is None or gpu not in ("auto", 0):
        return []
    largest = 0
    for entry in study.methods:
        low = {name: form.ends()[0] for name, form in entry.parameters().items()}
        try:
            trial = parse(trial_document(study, entry.label, [low], study.seed))
        except SpecError:  # choices that exclude each other
            continue
        searched = "clients_per_round" in entry.sizes
        cohorts = study.sizes_of(entry, "clients_per_round") if searched else (trial.clients_per_round,)
        clients = max(size or trial.task.clients for size in cohorts)
        largest = max(largest, round_bytes(trial.task, clients, trial.dtype) or 0)
    if largest <= total / _COPIES or (gpu == "auto" and _has_gpu()):
        return []
    text = f"the models of all clients of a round take {largest / 2**30:.3g} GiB, got {total / 2**30:.3g} GiB of memory"
    advice = "take a smaller model or fewer clients_per_round"
    if largest > total:
        raise InvalidSpec("task.model", f"must fit into this computer: {text}: {advice}")
    return [f"task.model: {text}; training holds them about {_COPIES} times, and may not fit: {advice}"]


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
