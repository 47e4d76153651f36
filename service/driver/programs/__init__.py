"""Trials that a user's own training program trains: a worker runs the program, and passes its report lines on.

    report_lines  what a program reports, checked line by line
    run_log       the program's output, kept up to a limit
    process       the program and its processes, which are ended with the trial
    saved_folder  a checkpoint folder as one object
    node_run      starts the program on one node of its trial
    program_pack  one trial as a pack of one, in place of `trainers.Pack`
    node_folder   a temporary folder on the trial's node, for programs of a service

docs/programs.md describes the files that worker and program exchange. A program imports nothing from here.
"""
