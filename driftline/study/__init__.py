"""What people write: studies with their entries, budgets and samplers, read from YAML or made in Python.

`spec.Study` is parsed once, with errors that name the key. `check` reads its trials with the trainers (and torch), on
demand; `trial_document` turns an entry and hyperparameters into what a worker trains. `version_0_1` alone knows the
spelling of Driftline 0.1. Imports only search_spaces and trainers.
"""
