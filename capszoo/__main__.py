"""`python -m capszoo` is the command line."""

from capszoo.cli import main

main()
