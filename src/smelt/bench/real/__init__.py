"""`make real`: models that nobody here chose, compiled, judged and timed as a user would."""
