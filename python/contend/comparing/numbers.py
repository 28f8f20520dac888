"""Bounds of a comparison, apart from what computes: the command line starts without it."""

SEEDS_DEFAULT = 5
SEEDS_MAX = 10_000
