"""Fuzzes every target of a build for some seconds each, from the corpus and back into it.

New inputs that reach new code go to <build>/corpus/<target>; with --merge the smallest set with the
same coverage replaces the corpus in tests/fuzz/corpus.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
MAX_INPUT_BYTES = 4096


def targets(build):
    """Names of the fuzz targets that the build has and a corpus exists for."""
    return sorted(path.name for path in CORPUS.glob("*/") if (build / "bin" / path.name).exists())


def fuzz(build, name, seconds, workers):
    """One target; its exit code. Crashing inputs stay in <build>/crashes/<target>."""
    found, crashes = build / "corpus" / name, build / "crashes" / name
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {seconds} s, {workers} at once", flush=True)
    # Workers share what they find through the first folder.
    command = [build / "bin" / name, found, CORPUS / name, f"-max_total_time={seconds}",
               f"-max_len={MAX_INPUT_BYTES}", f"-artifact_prefix={crashes}/", "-timeout=20",
               "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1"]
    if workers > 1:
        command += [f"-jobs={workers}", f"-workers={workers}"]
    code = subprocess.call([str(part) for part in command], cwd=crashes)
    if code != 0:
        for log in sorted(crashes.glob("fuzz-*.log")):
            print(log.read_text(encoding="utf-8", errors="replace")[-8000:])
        print(f"{name}: exit code {code}; inputs that failed are in {crashes}")
    return code


def merge(build, name):
    """Replaces the kept corpus by the smallest set that covers the same; its exit code."""
    fresh = build / "merged" / name
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    code = subprocess.call([build / "bin" / name, "-merge=1", f"-max_len={MAX_INPUT_BYTES}", fresh,
                            CORPUS / name, build / "corpus" / name])
    if code == 0:
        shutil.rmtree(CORPUS / name)
        shutil.copytree(fresh, CORPUS / name)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--merge", action="store_true", help="rewrite tests/fuzz/corpus afterwards")
    options = parser.parse_args()

    names = targets(options.build)
    if not names:
        print(f"no fuzz target in {options.build / 'bin'}")
        return 1
    workers = len(os.sched_getaffinity(0))
    codes = [fuzz(options.build, name, options.seconds, workers) for name in names]
    if options.merge and not any(codes):
        codes += [merge(options.build, name) for name in names]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
