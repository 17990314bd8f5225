"""Regions as Triton kernels beside a CPU kernel of the same op."""
