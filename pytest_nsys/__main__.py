"""``python -m pytest_nsys``: the command, if its script is not on the path."""

from pytest_nsys.cli import main

main(prog_name="pytest-nsys")
