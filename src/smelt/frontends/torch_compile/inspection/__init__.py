"""Ways to look at what became of a graph: records, comparisons, explanations."""
