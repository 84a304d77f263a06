"""Layout by clang-format, mistakes by clang-tidy, house rules by tests/tools/check_repository.py.

Run as a program it checks the layout alone: `dev_lint.py --clang-format PATH`.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from dev_progress import Progress

ROOT = Path(__file__).resolve().parent.parent
FORMATTED = ["*.h", "*.hpp", "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh"]
TIDY_ROOTS = ("src/", "tests/", "examples/")
# What `./dev test` does: the sources of the library, without the path-sensitive checks, which take
# longer than all others together. `./dev lint` does everything.
QUICK_ROOTS = ("src/",)
QUICK_CHECKS = "--checks=-clang-analyzer-*"
SKIP = 77


def tracked(patterns):
    """Files that git knows, relative to the root; None outside a checkout."""
    done = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        return None
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]


def format_sources(clang_format="build/venv/bin/clang-format"):
    """Rewrites every tracked source; the exit code."""
    return subprocess.call([clang_format, "-i", *tracked(FORMATTED)], cwd=ROOT)


def is_pinned(clang_format):
    """Whether this is the release that the requirements name: others lay out differently."""
    try:
        version = subprocess.run([clang_format, "--version"], text=True, capture_output=True,
                                 check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    pins = (ROOT / "tests" / "tools" / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^clang-format==([\d.]+)$", pins, re.M)[1] in version


def check_format(clang_format):
    """Says which files are laid out otherwise; the exit code."""
    if not is_pinned(clang_format):
        print("skipped: the clang-format of tests/tools/requirements.txt is not there")
        return SKIP
    files = tracked(FORMATTED)
    if files is None:
        print("skipped: not a git checkout, so there is no list of sources")
        return SKIP
    text = subprocess.run([clang_format, "--dry-run", *files], cwd=ROOT, text=True,
                          capture_output=True, check=True).stderr if files else ""
    found = sorted(set(re.findall(r"^(.*?):\d+:\d+: warning:", text, re.M)))
    for name in found:
        print(f"{name}: ./dev format would change it")
    print(f"{len(files)} files, {len(found)} to lay out")
    return 1 if found else 0


def dependencies(tree):
    """What each object was compiled from, as ninja recorded it: {source: [files]}."""
    text = subprocess.run(["ninja", "-C", str(tree), "-t", "deps"], text=True,
                          capture_output=True, check=True).stdout
    found = {}
    for block in text.split("\n\n"):
        files = [(tree / line.strip()).resolve() for line in block.splitlines()[1:] if line.strip()]
        if files:
            own = [path for path in files if path.is_relative_to(ROOT)]
            found[files[0]] = own
    return found


def tidy_jobs(tree, stamps, roots, checks):
    """(source, stamp) for each compiled source whose check is older than what it depends on."""
    deps = dependencies(tree)
    settings = (ROOT / ".clang-tidy").read_bytes() + " ".join(checks).encode()
    jobs = []
    for entry in json.loads((tree / "compile_commands.json").read_text(encoding="utf-8")):
        source = Path(entry["file"]).resolve()
        if not source.is_relative_to(ROOT):
            continue
        if not str(source.relative_to(ROOT)).startswith(roots):
            continue
        key = hashlib.sha256(settings + entry["command"].encode())
        for path in sorted({source, *deps.get(source, [])}):
            key.update(path.read_bytes())
        stamp = stamps / key.hexdigest()
        if not stamp.exists():
            jobs.append((source, stamp))
    return jobs


def tidy(workers, quick=False):
    """clang-tidy over what changed since it last passed; the exit code."""
    clang_tidy, tree = ROOT / "build/venv/bin/clang-tidy", ROOT / "build" / "release"
    roots, checks = (QUICK_ROOTS, [QUICK_CHECKS]) if quick else (TIDY_ROOTS, [])
    stamps = ROOT / "build" / "lint"
    stamps.mkdir(parents=True, exist_ok=True)

    jobs = tidy_jobs(tree, stamps, roots, checks)
    progress = Progress("clang-tidy")

    def check(job):
        source, stamp = job
        done = subprocess.run([clang_tidy, "-p", tree, "--quiet", *checks, source], text=True,
                              capture_output=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return True
        print(done.stdout, flush=True)
        return False

    results = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for result in pool.map(check, jobs):
            results.append(result)
            progress.step(len(results), len(jobs))
    print(f"clang-tidy: {results.count(True)} files clean, {results.count(False)} with findings")
    return 0 if all(results) else 1


def check_repository():
    return subprocess.call([sys.executable, "tests/tools/check_repository.py"], cwd=ROOT)


def lint(workers=2):
    """Everything; the exit code."""
    codes = [check_repository(), check_format(str(ROOT / "build/venv/bin/clang-format")),
             tidy(workers)]
    return 1 if any(codes) else 0


def main():
    options = argparse.ArgumentParser(description="checks the layout of the sources")
    options.add_argument("--clang-format", required=True)
    return check_format(options.parse_args().clang_format)


if __name__ == "__main__":
    sys.exit(main())
