"""Studies as users write them, in YAML or Python: entries, budgets and samplers.

`spec.Study` is parsed once, with errors that name the key. On demand, `check` parses its trials with the trainers (and
torch); `trial_document` turns an entry and hyperparameters into the document that a worker trains. Only `version_0_1`
knows the names of Driftline 0.1. Outside this package and its errors, only search_spaces and trainers are imported.
"""
