"""Models, one module each, found by `trainers.registry`. The contract is `trainers.engine.oracles.oracle.ModelBuilder`.

They share:

    _network                      any torch module as a model
    _targets                      what targets mean: classes, numbers or tokens
    _affine                       base of softmax and linear regression
    _by_hand, _layers             an oracle by hand for layers with ReLU between them; these layers
    _stacked                      oracles by hand for affine models: batched products
    _example_space, _first_layer  local loops on scores of examples; the same for a perceptron's first weight
    _augmentation, _dropout       shifted and mirrored images; dropped units
    _examination, _layer_calls    whether a module keeps state, mixes examples or draws, and the layer that does
    _preparation                  shapes of lazy layers, frozen parts, and what is refused without a call of a module
    _two_examples                 the examples with which it is examined
    _module_state, _generators    what a module holds; the generators of the process, seeded
    _accuracy                     weights of examples, and the distribution of accuracy over clients
"""
