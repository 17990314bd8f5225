"""Functions in Triton's language, which the generator copies as text."""
