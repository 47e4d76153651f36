"""The command `driftline`: `main` and `remote` define the commands, the other modules implement them.

    main, remote                   commands, options, exit codes; the commands for a service
    options, completion            options that several commands share; suggestions in the shell
    check, init                    `driftline validate`; `driftline init`
    data_commands, data_picture    `driftline data describe` and `fetch`; the picture
    data_fetch, public_data        downloads a public data set; the sets that there are
    run, begun_run                 `run`, `resume`, `retry`, `extend` in this process; starts Ray early for `run`
    jobs                           commands for studies on a service, and those for studies in either place
    unanswered                     submissions to which no answer came
    terminal                       prints lines with text that others wrote
    file_errors                    errors of commands that write a new file
    show                           prints frontiers, comparisons, methods and tasks
    replay, theory, papers         `export` and `replay`; `driftline theory`; `driftline papers`
    ui                             `ui` and `models`: MLflow for output folders
    serve, doctor                  `serve` and `migrate`; checks of the systems that Driftline runs on
    token_commands, quota_command  the commands for tokens; the command `quota`
    __main__                       `python -m service.cli`

No other package imports this one.
"""
