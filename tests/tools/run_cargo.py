"""Runs cargo in a workspace for CTest: run_cargo.py FOLDER COMMAND ARGUMENT...

Without network, by the committed lock file. Skips (77), with the reason, where cargo, one of its
commands, a crate or libclang is not on this machine.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

SKIP = 77
# Commands that come apart from cargo itself.
COMPONENTS = {"clippy": "cargo-clippy", "fmt": "cargo-fmt"}


def reason_to_skip(folder, command):
    """Why this machine cannot run the command; empty where it can."""
    if shutil.which("cargo") is None:
        return "cargo is not there"
    # rustup leaves commands that only say that there is no toolchain.
    component = COMPONENTS.get(command[0])
    for program in filter(None, ("cargo", component)):
        if shutil.which(program) is None:
            return f"{program} is not there"
        if subprocess.run([program, "--version"], cwd=folder, capture_output=True,
                          check=False).returncode != 0:
            return f"{program} does not run here: is there a toolchain?"
    if command[0] == "fmt":
        return ""
    fetched = subprocess.run(["cargo", "fetch", "--locked", "--offline"], cwd=folder, text=True,
                             capture_output=True, check=False)
    if fetched.returncode != 0:
        return "crates that Cargo.lock names are not on this machine: cargo fetch --locked"
    return ""


def libclang():
    """Environment in which bindgen finds libclang and the compiler's headers; None without it."""
    found = importlib.util.find_spec("clang")
    folders = [Path(folder) / "native" for folder in found.submodule_search_locations or []] \
        if found else []
    folders = [folder for folder in folders if (folder / "libclang.so").exists()]
    if not folders:
        return None
    include = subprocess.run(["gcc", "-print-file-name=include"], text=True, capture_output=True,
                             check=False).stdout.strip()
    return {"LIBCLANG_PATH": str(folders[0]), "CLANG_INCLUDE": include}


def main():
    folder, command = sys.argv[1], sys.argv[2:]
    reason = reason_to_skip(folder, command)
    environment = {}
    if not reason and "xtask" in command and command[0] == "run":
        environment = libclang()
        if environment is None:
            reason = "libclang of tests/tools/requirements-bindings.txt is not there"
    if reason:
        print(f"skipped: {reason}")
        return SKIP
    offline = [] if command[0] == "fmt" else ["--locked", "--offline"]
    return subprocess.call(["cargo", command[0], *offline, *command[1:]], cwd=folder,
                           env={**os.environ, **environment})


if __name__ == "__main__":
    sys.exit(main())
