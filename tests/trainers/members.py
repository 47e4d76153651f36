"""The contract of packs: what members may not do to one another, and what checkpoints may not change."""

from dataclasses import replace

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .methods.trials import alone, same


def contract(given, members, cut=2):
    """A member is the same alone and in a pack, and a pack whatever becomes of a checkpoint after round `cut`.

    To the bit if it is uninterrupted, restored or goes on after it was saved; nearly if members are split off and
    joined in another order. The last of at least two members must do something else than the first.
    """
    spec = parse({**given, "members": members})
    pack = Pack.from_spec(spec)
    early, saved = pack.advance(cut), pack.to_bytes()
    whole = early + pack.advance()
    restored = Pack.restore(spec, saved)
    assert (restored.round, restored.plan) == (cut, pack.plan)
    assert timeless(early + restored.advance()) == timeless(Pack.from_spec(spec).advance()) == timeless(whole)
    order, parts = [len(members) - 1, 0], Pack.split(saved)
    turned = parse({**given, "members": [members[one] for one in order]})
    later = Pack.restore(turned, Pack.join([parts[one] for one in order])).advance()
    for place, one in enumerate(order):
        same(of(later, place), [line for line in of(whole, one) if line["round"] > cut])
    for number, settings in enumerate(members):
        single = Pack.from_spec(parse(alone(given, settings)), plan=replace(pack.plan, width=1))
        same(of(whole, number), single.advance())
    assert of(whole, 0)[-1]["update_norm"] != of(whole, len(members) - 1)[-1]["update_norm"]


def of(lines, member):
    return [line for line in lines if line["member"] == member]


def as_if_alone(lines, member):
    """The member's lines without its number and the time."""
    return [{name: line[name] for name in line.keys() - {"member", "wall_seconds"}} for line in of(lines, member)]


def curves(lines, chosen):
    """Member of a whole list -> its lines, without its number in the pack and what depends on its neighbours."""
    found = {one: [] for one in chosen}
    for line in lines:
        own = {name: value for name, value in line.items() if name not in ("wall_seconds", "shared_gradients")}
        found[chosen[own.pop("member")]].append(own)
    return found


def timeless(lines):
    return [{**line, "wall_seconds": 0} for line in lines]
