"""Sizes that are known only at run time: what they broadcast to, and which of them are equal.

Input: sizes. Output: sizes, or what is known of two. Invariant: what is not proved is said to be so, and left to
whoever asks to check at run time.
"""

from __future__ import annotations

import hashlib

from .index import Atom, Fn, Ix, Sym, evaluate, members_of, nonneg, of


def broadcast_size(a: Ix, b: Ix) -> Ix:
    """What two sizes broadcast to that are known only at run time: a symbol with both as members."""
    table = {m.key: m for size in (a, b) for m in (members_of(size) or (size,))}
    keys = sorted(table)
    name = f"j:{hashlib.sha256('|'.join(keys).encode()).hexdigest()[:12]}"
    return of(Sym(name, True, tuple(table[key] for key in keys)))


def covers(size: Ix, part: Ix) -> bool:
    """Whether `part` is one of the sizes, or is made of the sizes, that `size` was broadcast from."""
    inner = {m.key for m in members_of(part) or (part,)}
    return inner <= {m.key for m in members_of(size)}


def depends_on(size: Ix, symbol: Atom) -> bool:
    """Whether the symbol is part of the size, or of a size that it was broadcast from."""
    stack, seen = list(size.atoms), set[Atom]()
    while stack:
        atom = stack.pop()
        if atom == symbol:
            return True
        if atom not in seen:
            seen.add(atom)
            stack += [a for member in (atom.members if isinstance(atom, Sym) else ()) for a in member.atoms]
    return False


def equality(a: Ix, b: Ix) -> tuple[Sym, Ix] | None:
    """Two sizes that must be equal, as a symbol and what it is; None where neither is a bare symbol of a dimension."""
    sides = [(_bare(one), other) for one, other in ((a, b), (b, a))]
    fitting = [(s, other) for s, other in sides if s is not None and _plain(other) and not depends_on(other, s)]
    return max(fitting, key=lambda pair: (bool(pair[0].members), _age(pair[0])), default=None)


def _bare(size: Ix) -> Sym | None:
    atom = size.terms[0][0][0] if len(size.terms) == 1 and len(size.terms[0][0]) == 1 else None
    return atom if isinstance(atom, Sym) and atom.nonneg and size.terms[0][1] == 1 else None


def _plain(size: Ix) -> bool:
    return nonneg(size) and all(isinstance(a, Sym) and a.nonneg for a in size.atoms)


def _age(symbol: Sym) -> tuple[int, str]:
    """Names count values in the order in which they were met."""
    return len(symbol.name), symbol.name


_PROBES = (2, 3, 5, 8, 17, 64, 101, 128, 384)


def agree(a: Ix, b: Ix) -> bool:
    """Whether two sizes that are spelled differently are equal wherever it was tried. Not a proof: whoever relies on it
    must also check it at run time. Sizes that are clamped in different ways (`min(n, 512)`, `max(n - 1, 0) + 1`) differ
    only at the ends of their range, where one of them would be an error anyway."""
    if a.syms != b.syms or not a.syms or not any(isinstance(x, Fn) for x in a.atoms | b.atoms):
        return False
    names = sorted(s.name for s in a.syms)
    try:
        for shift in range(len(_PROBES)):
            env = {name: _PROBES[(shift + 2 * place) % len(_PROBES)] for place, name in enumerate(names)}
            if evaluate(a, env) != evaluate(b, env):
                return False
    except KeyError:
        return False
    return True
