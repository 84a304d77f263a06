"""The types of the Python package, by mypy --strict (its settings stand in pyproject.toml).

Checks the sources; the types that a program infers (program.py against program.expected); the stubs
of the public interface against the stored ones (interface.pyi); and the stub of the SWIG module
against the headers and against the module itself. `--accept` rewrites what is stored.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCES = ROOT / "bindings" / "python"
PUBLIC = ("errors", "_introspection", "_context", "_sessions", "_op", "_plan", "_binding",
          "_memory", "_graph", "_tensors")
EXPECTED, INTERFACE = HERE / "program.expected", HERE / "interface.pyi"


def run(*command, **environment):
    """(exit code, output) of a tool of this Python."""
    done = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "NO_COLOR": "1", **environment})
    return done.returncode, done.stdout


def mypy(folder, *arguments):
    return run("-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", folder,
               "--no-error-summary", *arguments)


def revealed(folder):
    """What mypy says of program.py, one line each, without the file's path."""
    _, text = mypy(folder, HERE / "program.py")
    return re.sub(r"^.*program\.py:", "", text, flags=re.M)


def interface(folder):
    """The stubs of the public modules in one text."""
    code, text = run("-c", "import sys, mypy.stubgen; mypy.stubgen.main(sys.argv[1:])",
                     "--no-import", "--quiet", "-o", folder / "stubs",
                     *(SOURCES / "attn_c" / f"{name}.py" for name in PUBLIC))
    if code != 0:
        raise RuntimeError(text)
    texts = []
    for name in PUBLIC:
        made = next((folder / "stubs").rglob(f"{name}.pyi"))
        texts.append(f"# ---- {name}\n{made.read_text(encoding='utf-8')}")
    return "\n".join(texts)


def differences(path, text):
    """Lines that differ from what is stored."""
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    return list(difflib.unified_diff(stored.splitlines(), text.splitlines(), path.name, "now",
                                     lineterm="", n=1))


def findings(folder, package):
    """Everything that is wrong, as texts."""
    code, text = mypy(folder)
    if code != 0:
        yield text
    code, text = run(SOURCES / "make_native_stub.py", "--check")
    if code != 0:
        yield text
    for path, text in ((EXPECTED, revealed(folder)), (INTERFACE, interface(folder))):
        changed = differences(path, text)
        if changed:
            yield "\n".join([*changed, f"{path.name}: --accept after a change that is meant"])
    if package:
        code, text = run("-m", "mypy.stubtest", "attn_c.native", "--concise",
                         "--allowlist", HERE / "stubtest_allowed.txt",
                         PYTHONPATH=str(package), MYPYPATH=str(SOURCES))
        if code != 0:
            yield text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=Path, help="the folder that holds the built attn_c")
    parser.add_argument("--accept", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.accept:
            EXPECTED.write_text(revealed(folder), encoding="utf-8")
            INTERFACE.write_text(interface(folder), encoding="utf-8")
            return 0
        found = list(findings(folder, options.package))
    for text in found:
        print(text)
    print(f"types: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
