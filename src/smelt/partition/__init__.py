"""Model + claims -> Plan, and Plan -> rewritten Model.

`capture` chooses regions, `rewrite` replaces each by one custom-op node, `estimate` says what a region moves.
"""

from smelt.partition.capture import capture
from smelt.partition.cost import Cost, estimate, pays
from smelt.partition.rewrite import rewrite

__all__ = ["Cost", "capture", "estimate", "pays", "rewrite"]
