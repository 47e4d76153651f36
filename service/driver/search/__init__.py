"""Decides what a study trains next, without Ray.

    search             hands out packs, takes their reports, talks to the API and the samplers
    policy, actions    what to do next (pure); the plan and the actions of these decisions
    study_plan         generations, widths of packs and seeds of a study
    study_rows, state  the trials in memory; curves so far and running packs
    proposals, chosen  what samplers propose; configurations that are run again on fresh seeds
    rungs, ladder      which trials continue beyond a rung (pure); values and checkpoints at rungs
    rules, forecast    the rules of promotion (pure); what a trial may still reach
    outcome            how trials and studies end
    archive_copy       the files of a study's program, copied to where workers read them

Imports `service.samplers` and pure functions of driftline.results, and never `service.driver.ray`.
"""
