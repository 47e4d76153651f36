"""Trials that a training program of people's own trains: a worker runs it, and hands its report lines on.

    report_lines  what a program reports, checked line by line
    run_log       its output, of which a bounded part is kept
    process       the program and its processes, which end with its trial
    saved_folder  a checkpoint folder as one object
    node_run      the program on one node of its trial, and what it is told there
    program_pack  one trial as a pack of one, in place of `trainers.Pack`
    node_folder   a folder of the trial's node, for programs of a service

The files between worker and program: docs/programs.md. Nothing here is imported by a program.
"""
