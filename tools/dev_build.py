"""Configures and builds one preset of CMakePresets.json under build/<preset>."""

import json
import os
import shutil
import subprocess
import sys

from dev_progress import run_ninja
from dev_setup import BUILD, ROOT, VENV, environment, say

# Presets whose instrumented code a plain Python interpreter cannot load, or that are carried away
# to a machine with another one.
WITHOUT_PYTHON = {"asan", "ubsan", "tsan", "fuzz", "coverage", "gpu"}
FUZZ_COMPILERS = {"CC": "clang-19", "CXX": "clang++-19"}


def presets():
    """The names that --preset may have."""
    text = (ROOT / "CMakePresets.json").read_text(encoding="utf-8")
    return [preset["name"] for preset in json.loads(text)["configurePresets"]
            if not preset.get("hidden")]


class BuildError(Exception):
    """CMake or the compiler failed; what they said was shown already."""


def jobs():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def build_environment(preset):
    result = environment(preset)
    if preset == "fuzz":
        result.update(FUZZ_COMPILERS)
    return result


def configure_arguments(preset):
    python = "OFF" if preset in WITHOUT_PYTHON else "ON"
    csharp = python if shutil.which("mcs") else "OFF"
    interpreter = VENV / "bin" / "python"
    return [
        "cmake", "--preset", preset,
        f"-DPython3_EXECUTABLE={interpreter if interpreter.exists() else sys.executable}",
        f"-DSWIG_EXECUTABLE={VENV / 'bin' / 'swig'}",
        f"-DATTN_C_BUILD_PYTHON={python}",
        f"-DATTN_C_BUILD_CSHARP={csharp}",
    ]


def configure(preset):
    """Runs CMake where the tree is new or its arguments changed; ninja notices all else."""
    tree = BUILD / preset
    stamp = tree / "configured.txt"
    arguments = configure_arguments(preset)
    wanted = "\n".join(arguments)
    if (tree / "build.ninja").exists() and stamp.exists():
        if stamp.read_text(encoding="utf-8") == wanted:
            return
    done = subprocess.run(arguments, cwd=ROOT, env=build_environment(preset), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        print(done.stdout, flush=True)
        raise BuildError(f"configuring the preset {preset} failed")
    stamp.write_text(wanted, encoding="utf-8")


def build(preset="release", targets=()):
    """Builds a preset (or some of its targets); says how far it is, warnings and errors."""
    configure(preset)
    command = ["cmake", "--build", str(BUILD / preset), "-j", str(jobs())]
    if targets:
        command += ["--target", *targets]
    code = run_ninja(command, f"building {preset}", cwd=ROOT,
                     env={**build_environment(preset), "NINJA_STATUS": "[%f/%t] "})
    if code != 0:
        raise BuildError(f"building the preset {preset} failed")


def build_aloud(preset):
    """`./dev build`: the same, and where the result lies."""
    build(preset)
    say(f"built build/{preset}: programs in bin/, libraries in lib/")
