"""`./dev wheel`: the Python package as one wheel for CPython 3.11 and later, in build/dist.

The plugin lies in it, and the pack of ready kernels where one was made. auditwheel names the
platforms that the wheel is for, and refuses one that needs a library which those do not have.
"""

import os
import subprocess
import sys
from pathlib import Path

from dev_build import BuildError, build
from dev_gpu import PACK, is_pack_stale
from dev_setup import BUILD, ROOT, VENV, environment, say

DIST = BUILD / "dist"
RAW = BUILD / "wheel-raw"


def compilers(tree):
    """The compilers of a build tree, as environment: objects that it compiled come from ccache."""
    cache = tree / "CMakeCache.txt"
    lines = cache.read_text(encoding="utf-8").splitlines() if cache.exists() else []
    found = {}
    for line in lines:
        for variable, name in (("CC", "CMAKE_C_COMPILER"), ("CXX", "CMAKE_CXX_COMPILER")):
            if line.startswith(name + ":"):
                found[variable] = line.partition("=")[2]
    return found


def run(command, **extra):
    """Runs a step; shows what it said where it fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, text=True, check=False,
                          env={**environment(), **extra}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BuildError(f"{done.stdout}\nfailed ({done.returncode}): "
                         + " ".join(map(str, command)))
    return done.stdout


def clear(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("attn_c-*.whl"):
        old.unlink()


def build_wheel(python=sys.executable, pack=None, target=DIST):
    """Builds the wheel with the packages of `python`; its path. Nothing is fetched."""
    clear(RAW)
    clear(target)
    settings = [f"-Ccmake.define.ATTN_C_KERNEL_PACK={pack or ''}",
                "-Ccmake.define.ATTN_C_WARNINGS_AS_ERRORS=ON"]  # as in build/release
    run([python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--no-cache-dir", "--disable-pip-version-check", *settings, "-w", RAW, ROOT],
        CMAKE_BUILD_PARALLEL_LEVEL=str(len(os.sched_getaffinity(0))),
        PATH=os.pathsep.join([str(Path(python).parent), environment()["PATH"]]),
        **compilers(BUILD / "release"))
    made = list(RAW.glob("attn_c-*.whl"))
    if len(made) != 1:
        raise BuildError(f"expected one wheel in {RAW}; got {made}")
    run([python, "-m", "auditwheel", "repair", "-w", target, made[0]],
        PATH=os.pathsep.join([str(Path(python).parent), environment()["PATH"]]))
    return next(target.glob("attn_c-*.whl"))


def wheel(with_pack=False):
    """`./dev wheel`; the exit code."""
    if with_pack and is_pack_stale():
        build("release", ["attn_c_kernel_pack"])
    pack = None if is_pack_stale() else PACK
    made = build_wheel(VENV / "bin" / "python", pack)
    content = "with" if pack else "without"
    say(f"{made.relative_to(ROOT)}: {made.stat().st_size / 2**20:.1f} MiB, "
        f"{content} the pack of ready kernels")
    return 0
