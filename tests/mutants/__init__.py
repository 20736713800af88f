"""Planted bugs: what the simulated worlds must find. ``python -m tests.mutants --help`` says how to plant them."""
