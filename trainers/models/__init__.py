"""Models, one module each, found by `trainers.registry`. The contract is `trainers.engine.oracles.oracle.ModelBuilder`.

They share:

    _network                      any torch module as a model
    _problem                      what a model reads of its problem
    _targets, _losses             what targets mean: classes, numbers, tags or tokens; the loss of each kind
    _affine                       base of softmax, linear and logistic regression
    _by_hand, _layers             an oracle by hand for layers one after another; these layers
    _stacks, _stack_oracles       which modules are such layers; their oracles
    _stacked                      oracles by hand for affine models: batched products
    _example_space, _first_layer  local loops on scores of examples; the same for a perceptron's first weight
    _augmentation, _dropout       shifted and mirrored images; dropped units
    _examination, _layer_calls    whether a module keeps state, mixes examples or draws, and the layer that does
    _preparation                  shapes of lazy layers, frozen parts, and what is refused without a call of a module
    _two_examples                 the examples with which a module is examined
    _module_state, _generators    what a module holds; the generators of the process, seeded
    _scored_examples              what measures need of each example: trial by trial, on accelerators of all at once
    _evaluation, _measures        an evaluation on test examples; its measures, of all of them and of each client
"""
