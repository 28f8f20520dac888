"""`contend sweep`: many scenarios, on all cores or a cluster, into a Parquet data set (docs/sweeps.md)."""
