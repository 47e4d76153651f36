"""Studies as users write them, in YAML or Python: entries, budgets and samplers.

    spec, entries              `Study`, and its entries: methods, optimizers and schedules with their search spaces
    trial_settings             settings that a study gives its trials, and an entry's own settings
    program_sources            the files of a study's program, also packed for a service
    program, program_function  a training program in place of a task; a Python function as such a program
    task_facts                 facts that the plug-ins of a task's document declare
    sampler, starting_points   the keys ``sampler`` of a study or an entry and ``start`` of an entry
    stages                     tuning in stages: which hyperparameters, values and trials each stage has
    validation                 base of the parts of a study: errors name the keys as the user wrote them
    yaml_files, all_errors     reads YAML files; all errors of a study's file at once
    stand_ins                  replacements for invalid values while a study is read again
    check, search_check        checks a study in full, with the code that parses trials; how its entries are searched
    outlook                    what a valid study will do and can claim, in sentences
    trial_document             the trial document that a trainer gets, from a study and configurations
    trial_parts                the parts of this document that an entry and its configurations determine
    budget                     trials, seeds and searches; what a trial may spend
    rung_rounds                the rounds at which search trials are compared
    trial_rounds               how many rounds a trial has within what it may spend
    pack_families              which labels may train in common packs
    directions, chance         which way a metric is better; whether anything besides the search is random
    theory_spaces, warm_start  spaces from theory; starting points and a prior from an earlier study
    examples, papers           the example studies that come with Driftline; the papers' figures and tables as studies
    notebook                   HTML of a study for notebooks

A study is parsed once. Torch is imported by the full check, and where a function says so. Outside this package and its
errors, only search_spaces and trainers are imported.
"""
