"""`python -m smelt`: the command line, where its script is not on the path."""

from smelt.cli import main

if __name__ == "__main__":
    main()
