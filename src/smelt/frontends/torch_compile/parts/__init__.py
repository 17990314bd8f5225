"""One part of a graph as a function over a session."""
