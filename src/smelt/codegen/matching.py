"""Where a tensor's variables are found in the loops that compute its operands.

Input: one component of an operand's index and where the operand is computed. Output: variables with their values.
Invariant: substituting what was found makes the component equal to the place, or nothing is found.
"""

from __future__ import annotations

from smelt.ir.kernel import Ix, Var, ix


def solve(component: Ix, place: Ix) -> dict[Var, Ix]:
    """Variables such that component = place: a lone variable, or digits of a mixed-radix number."""
    lone = bare(component)
    if lone is not None:
        return {lone: place}
    digits: list[tuple[Var, int | None, Ix]] = []
    for monomial, scale in component.terms:
        loops = [a for a in monomial if isinstance(a, Var)]
        if len(loops) != 1:
            return {}
        rest = list(monomial)
        rest.remove(loops[0])
        digits.append((loops[0], len(rest), Ix([(tuple(rest), scale)])))
    solved: dict[Var, Ix] = {}
    step = ix(1)
    for _ in range(len(digits)):
        found = next((d for d in digits if d[2] == step), None)
        if found is None:
            return {}
        digits.remove(found)
        if not digits:
            solved[found[0]] = place
            break
        solved[found[0]] = place % found[0].extent
        place, step = place // found[0].extent, step * found[0].extent
    return solved


def bare(value: Ix) -> Var | None:
    """The variable that the value is, if it is one."""
    if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        atom = value.terms[0][0][0]
        return atom if isinstance(atom, Var) else None
    return None
