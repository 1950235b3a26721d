"""`python -m experiments.cli`."""

from experiments.cli.program import main

main()
