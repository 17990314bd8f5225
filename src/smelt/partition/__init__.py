"""Model + claims -> Plan, and Plan -> rewritten Model.

`capture` chooses regions, `Splitter` cuts those that failed into parts, `rewrite` replaces each by one custom-op node,
`estimate` says what a region moves.
"""

from smelt.partition.capture import capture
from smelt.partition.cost import Cost, estimate, pays
from smelt.partition.levels import earliest_levels
from smelt.partition.rewrite import rewrite
from smelt.partition.split import FEW, Splitter

__all__ = ["FEW", "Cost", "Splitter", "capture", "earliest_levels", "estimate", "pays", "rewrite"]
