"""Builds the trial document that a trainer gets, from a study and configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from driftline.study.spec import Study
from driftline.study.trial_parts import document_of, structural_of
from driftline.study.trial_rounds import trial_budget
from trainers import round_batches, shown


def trial_document(
    study: Study,
    label: str,
    configurations: Sequence[Mapping[str, Any]],
    seed: int | Sequence[int],
    *,
    phase: Literal["search", "confirmation"] = "search",
) -> dict[str, Any]:
    """The document of a pack of trials: one entry, one seed or one for each trial, several configurations.

    Args:
        study: The study.
        label: Label of the entry.
        configurations: One configuration per member, by dotted name, all of one `structure`.
        seed: Seed of cohorts, batches and initial models, of all trials or of each.
        phase: Only search trials measure a sample of the held-out clients where the study asks for one.

    Returns:
        A trial document. Its ``members`` hold the values that may differ between them; each part holds the rest.

    Raises:
        ValueError: No configuration, or configurations that cannot share a pack.
        InvalidSpec: No such label, or the budget has no room for a round.
    """
    if not configurations:
        raise ValueError("a pack must have at least one configuration, got none")
    entry = study.entry(label)
    seeds = [seed] if isinstance(seed, int) else list(seed)
    if study.program is not None:
        return _program_trial(study, label, configurations, seeds[0])
    rounds = [trial_budget(study, entry, hyperparameters).last_round for hyperparameters in configurations]
    if len(set(rounds)) > 1:
        raise ValueError(f"configurations of one pack must share their number of rounds, got {shown(rounds)}")
    document = document_of(study, label, configurations, seeds[0], rounds[0], phase)
    if len(set(seeds)) > 1:
        members = zip(document["members"], seeds, strict=True)
        document["members"] = [member | {"seed": own} for member, own in members]
    return document


def _program_trial(study: Study, label: str, configurations: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """The document of one trial of a program: what it reads, and how to start it."""
    if len(configurations) > 1:
        raise ValueError(f"a program trains one trial, got {len(configurations)}")
    assert study.program is not None
    return {
        "label": label,
        "hyperparameters": dict(configurations[0]),
        "seed": seed,
        "rounds": study.budget.last_round,
        "quality": str(study.objective.quality),
        "program": study.program.to_json(),
    }


def structure(study: Study, label: str, configuration: Mapping[str, Any]) -> str:
    """A string that is equal for configurations of an entry that may share a pack.

    They have the same structural values: `gradient_weights`, `server.nesterov` and other hyperparameters that the
    members of a pack cannot have one by one, and the sizes `clients_per_round` and `batch_size`. If the budget is in
    what trials spend, they also have the same number of rounds; with ``batching: epochs``, of batches in a round. No
    member leaves out a value that another one has.

    Args:
        study: The study.
        label: Label of the entry.
        configuration: Values by dotted name.
    """
    entry = study.entry(label)
    shared = {dotted: configuration[dotted] for dotted in structural_of(entry) if dotted in configuration}
    if study.budget.unit != "rounds":
        shared["rounds"] = trial_budget(study, entry, configuration).last_round
    if study.batching == "epochs":
        shared["round_batches"] = round_batches(entry.name, configuration)
    left_out = sorted(dotted for dotted, value in configuration.items() if value is None)
    return json.dumps(shared | ({"left out": left_out} if left_out else {}), sort_keys=True)
