"""`contend compare`: results against a baseline, with confidence from repeats (docs/compare.md)."""
