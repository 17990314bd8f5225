"""`python -m smelt.cli`: the command line without an installed script.

Input: the process's arguments. Output: an exit code. Invariant: the same as the `smelt` command.
"""

from smelt.cli import main

if __name__ == "__main__":
    main()
