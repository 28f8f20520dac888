"""`python -m contend`."""

from contend.cli import main

main()
