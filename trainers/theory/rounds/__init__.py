"""A round of each method on quadratics as an affine map.

`affine` has the map, its fixed point and its rate; `methods` finds the map by a method's name. `local`, `aligned`,
`remembered` and `mixed` have the methods by kind, `central` the server's own loss.
"""
