"""Tools for Xen: `contend xen`."""
