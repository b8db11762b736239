"""The pieces of which a steered run's code is made: small functions in plain PyTorch.

Each one is left out where a run does not need it.
"""

from __future__ import annotations

COUNT = """
updates = 0  # that the optimizer has made
"""

LET_BEFORE = '''

def before_update({name}):
    """Bring into force what was changed for the update that comes."""
'''

FIRST_BEFORE = """\
    for change in AFTER.pop(updates, ()) if updates == 0 else ():
        change()
"""

CHANGE_BEFORE = """\
    for change in BEFORE.get({key}, ()):
        change()
"""

HELD_BEFORE = """\
    for (optimizer, at, key), value in held.items():
        group = optimizer.param_groups[at]
        lent.append((group, key, group[key]))
        group[key] = value
"""

FACTOR_BEFORE = """\
    for (optimizer, at), factor in times.items():
        group = optimizer.param_groups[at]
        lent.append((group, "lr", group["lr"]))
        group["lr"] = once.pop((optimizer, at), group["lr"] * factor)
    for (optimizer, at), value in once.items():
        group = optimizer.param_groups[at]
        lent.append((group, "lr", group["lr"]))
        group["lr"] = value
    once.clear()
"""

LET_AFTER = '''

def after_update():
    """Count the update that is over, and make the changes that came after it."""
    global updates
'''

LENT_AFTER = """\
    while lent:
        group, key, value = lent.pop()
        group[key] = value
"""

COUNT_AFTER = """\
    updates += 1
"""

CHANGE_AFTER = """\
    for change in AFTER.get(updates, ()):
        change()
"""

TABLES = {
    "held": "held = {}  # by optimizer, group and key: what an update uses, whatever stands there",
    "times": "times = {}  # by optimizer and group: lr is multiplied by it for each update",
    "once": "once = {}  # by optimizer and group: lr of the next update alone",
    "lent": "lent = []  # what stood there before the update under way",
    "kept": "kept = {}  # states to go back to",
}

PUT = '''

def put(optimizer, key, values, index=None):
    """Write a value into parameter groups; with an index, into a tuple there."""
    for at, value in values.items():
        group = optimizer.param_groups[at]
        if index is None:
            group[key] = value
        else:
            group[key] = type(group[key])(
                value if i == index else old for i, old in enumerate(group[key])
            )
'''

RESCALE = '''

def rescale(optimizer, values, schedulers):
    """Use these lr, by group, for the update that comes, and scale the rest of the schedule."""
    groups = optimizer.param_groups
{factors}    multiply(groups, factors, schedulers)
    for at, value in values.items():
{write}'''

#: The factors by which the schedule is scaled, and the writing: as simple as a run allows.
RESCALE_PLAIN = (
    """\
    factors = {at: value / groups[at]["lr"] for at, value in values.items()}
""",
    """\
        groups[at]["lr"] = value
""",
)
RESCALE_ZERO = (
    """\
    factors = {}
    for at, value in values.items():
        now, first = groups[at]["lr"], groups[at].get("initial_lr", 0.0)
        factors[at] = value / (now if abs(now) > 1e-12 * abs(first) else first)
""",
    """\
        if groups[at]["lr"] != 0:
            groups[at]["lr"] = value
        else:
            once[optimizer, at] = value
""",
)
RESCALE_TIMES = (
    """\
    factors = {}
    for at, value in values.items():
        factors[at] = value / (groups[at]["lr"] * times.get((optimizer, at), 1.0))
""",
    """\
        if (optimizer, at) not in times:
            groups[at]["lr"] = value
        else:
            groups[at]["lr"] *= factors[at]
            once[optimizer, at] = value
""",
)

MULTIPLY = '''

def multiply(groups, factors, schedulers):
    """Multiply every lr that the schedulers keep."""
{same}    for scheduler in {each}:
{lists}{scalars}    for at, factor in factors.items():
        for key in {keys}:
            if key in groups[at]:
                groups[at][key] *= factor
'''

SAME = """\
    all_alike = len(factors) == len(groups) and all(
        math.isclose(factor, factors[0], rel_tol=1e-9) for factor in factors.values()
    )
"""

LISTS = """\
        for name in {names}:
            for at, factor in factors.items():
                if isinstance(getattr(scheduler, name, None), list):
                    getattr(scheduler, name)[at] *= factor
"""

SCALARS = """\
        for name in {names}:
            if {alike}getattr(scheduler, name, None) is not None:
                setattr(scheduler, name, getattr(scheduler, name) * factors[0])
"""

LEAVES = '''

def leaves(schedulers):
    """Yield the schedulers inside of others."""
    for scheduler in schedulers:
        inner = getattr(scheduler, "_schedulers", None)
        yield from [scheduler] if inner is None else leaves(inner)
'''

HOLD = '''

def hold(optimizer, key, values):
    """Use these values in each update, whatever the schedule says."""
    for at, value in values.items():
        held[optimizer, at, key] = value
'''

FREE = '''

def free(optimizer, key, groups):
    """Let the schedule go on by itself."""
    for at in groups:
{drop}'''

UNSCALE = '''

def unscale(optimizer, scaled, schedulers):
    """Give the schedule back: as it was before it was scaled by these factors."""
    groups = optimizer.param_groups
    factors = {at: 1 / factor for at, factor in scaled.items()}
    multiply(groups, factors, schedulers)
    for at, factor in factors.items():
        groups[at]["lr"] *= factor
'''

LEND = '''

def lend(optimizer, values):
    """Use these lr in the next update; from then on multiply what the loop says as much."""
    for at, value in values.items():
        factor = times.get((optimizer, at), 1.0)
        times[optimizer, at] = factor * (value / (optimizer.param_groups[at]["lr"] * factor))
        once[optimizer, at] = value
'''

KEEP = '''

def keep(name):
    """Keep the whole state, to go back to it."""
    states = [each.state_dict() for each in {objects}]
    streams = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    kept[name] = copy.deepcopy(states), streams{tables}
'''

GO_BACK = '''

def go_back(name):
    """Go back to a state that was kept: weights, optimizer, schedule and random streams."""
    states, (python, arrays, tensors){tables} = kept[name]
    for each, state in zip({objects}, copy.deepcopy(states)):
        each.load_state_dict(state)
{put_back}    random.setstate(python)
    numpy.random.set_state(arrays)
    torch.set_rng_state(tensors)
'''

STOPPED = '''

class Stopped(BaseException):
    """The run was stopped here."""


def stop():
    raise Stopped
'''

TURNS = '''

def turns(iterable):
    """Count the turns of the loop."""
    for item in iterable:
        yield item
        after_update()
'''

WHILE = '''
turn_is_over = False


def turn():
    """Stand before the condition of the loop, and count its turns."""
    global turn_is_over
    if turn_is_over:
        after_update()
    turn_is_over = True
    return True
'''
