"""The folder that `smelt exec` puts on PYTHONPATH: Python imports its `sitecustomize` at start."""
