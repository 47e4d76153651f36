"""Trial documents: reads, checks and completes them, and warns about unlikely settings.

    document                     reads a whole document: `parse`, `TrialSpec`
    document_errors              all errors of a document, found with stand-ins for its wrong parts
    members                      several values of hyperparameters in one document: the members of a pack
    parts, roles                 method, optimizers and schedule; which optimizers a method takes
    inactive                     where hyperparameters change nothing
    server_units                 what a server optimizer steps along, and the unit of its settings
    mixed_values                 rules between the hyperparameters of mixed methods
    adaptation, held_out_sample  how held-out clients adapt; on how many of them a model is evaluated
    stragglers                   clients that take a part of their local steps, or are dropped
    model_reports                which tasks can have reports on test examples
    client_weighting             how clients are weighted: the default, which is the task's
    evaluation_rounds            the rounds after which a trial is evaluated
    spend                        what a trial spends in a round: client gradients, examples, tokens
    batching                     how the examples of mini-batches are drawn
    passes                       how the examples of clients are cut into mini-batches
    exchange                     which trials may quantise uploads, or exchange the model in fragments
    sizes                        rejects trials that no machine can hold
    warnings, mixed_warnings     settings that are allowed but probably not meant

Importing this package does not import torch, so that documents can be checked where nothing is trained.
"""
