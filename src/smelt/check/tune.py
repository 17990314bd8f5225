"""tmp"""
from smelt.check.findings import Findings
def tune(*a, **k) -> Findings:
    return Findings()
