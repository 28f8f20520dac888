"""`contend bench`: locks, measured on this machine and simulated on others."""
