"""Benchmarks import each other by name, as scripts of one folder do; so do their tests."""

import sys
from pathlib import Path

# Not as a package: others bring a `benchmarks` of their own.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
