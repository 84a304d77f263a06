"""The accepted versions of the ABI: abi/versions/<major.minor>, with the headers of that version
and a client program that was compiled from them.

Every client must run against the library that is built, and say that it called every function of
its headers. The version of the present headers is among them, and until 1.0 `./dev abi-accept` may
rewrite it; all others, and from 1.0 on that one too, never change, and never go: digests.txt has
the digest of each of their files.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import abi_facts

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"
VERSIONS = ROOT / "abi" / "versions"
CLIENT = Path(__file__).with_name("short_client.c")
HEADERS = abi_facts.HEADERS
DIGESTS = "digests.txt"
CALLED = re.compile(r"^called (\w+)$", re.M)


def version_of(compiler, include):
    """The (major, minor) that headers say."""
    facts = dict(line.split(" ", 1) for line in abi_facts.constants(compiler, include))
    number = int(re.search(r"0x[0-9a-fA-F]+", facts["ATTN_ABI_VERSION"])[0], 16)
    return number >> 16, number & 0xFFFF


def facts_of(compiler, include):
    """What a client relies on, of the headers alone."""
    return {"declarations": abi_facts.declarations(compiler, include),
            "layout": abi_facts.layouts(compiler, include),
            "constants": abi_facts.constants(compiler, include)}


def digests_of(versions):
    """{version/file: SHA-256} of all that lies in the folders of versions."""
    return {str(path.relative_to(versions)): hashlib.sha256(path.read_bytes()).hexdigest()
            for folder in sorted(versions.iterdir()) if folder.is_dir()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def reviewed_digests(versions):
    """The same as it was reviewed last; empty where it never was."""
    path = versions / DIGESTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def check_digests(versions, leave_out=""):
    """Complaints about files that are not as they were accepted; none of version `leave_out`."""
    there, reviewed = digests_of(versions), reviewed_digests(versions)
    for name in sorted(set(there) | set(reviewed)):
        if there.get(name) == reviewed.get(name) or name.startswith(f"{leave_out}/"):
            continue
        what = "is gone" if name not in there else \
            "was never accepted: ./dev abi-accept" if name not in reviewed else "was changed"
        yield f"abi/versions/{name} {what}"


def accept(compiler, versions=VERSIONS):
    """Rewrites the folder of the present version and the digests; the folder. What was released,
    and what another version left, stays."""
    major, minor = version_of(compiler, INCLUDE)
    folder = versions / f"{major}.{minor}"
    wrong = list(check_digests(versions, folder.name))
    if wrong:
        sys.exit("accepted versions stay as they are:\n" + "\n".join(wrong))
    if folder.exists() and major > 0 and facts_of(compiler, folder) != facts_of(compiler, INCLUDE):
        sys.exit(f"ABI {major}.{minor} was released: a change needs the next minor number")
    if major == 0 or not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in HEADERS:
            shutil.copy(INCLUDE / name, folder / name)
        shutil.copy(CLIENT, folder / "client.c")
    (versions / DIGESTS).write_text(
        "".join(f"{digest}  {name}\n" for name, digest in digests_of(versions).items()),
        encoding="utf-8")
    return folder


def run_client(folder, library, compiler, work):
    """Builds a version's client from its own headers and runs it; what is wrong, or nothing."""
    program = Path(work) / folder.name
    built = subprocess.run(
        [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", str(folder),
         str(folder / "client.c"), library, f"-Wl,-rpath,{Path(library).parent}", "-lm", "-o",
         str(program)], text=True, capture_output=True, check=False)
    if built.returncode != 0:
        return f"its client does not link to the library that is built: {built.stderr}"
    done = subprocess.run([program], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        return f"its client fails with {done.returncode}: {done.stdout}{done.stderr}"
    declared = [name for name in abi_facts.declared_functions(compiler, folder)
                if not name.startswith("attn_host_")]
    silent = sorted(set(declared) - set(CALLED.findall(done.stdout)))
    if silent or not declared:
        return f"its client says nothing of {', '.join(silent) or 'anything'}"
    return ""


def check_present(compiler, versions):
    """Complaints about the folder of the present version."""
    major, minor = version_of(compiler, INCLUDE)
    folder = versions / f"{major}.{minor}"
    if not folder.exists():
        yield f"ABI {major}.{minor} has no folder in abi/versions: ./dev abi-accept"
        return
    there, present = facts_of(compiler, folder), facts_of(compiler, INCLUDE)
    for name, lines in present.items():
        for line in sorted(set(there[name]) ^ set(lines)):
            where = "only in the headers" if line in lines else "no longer in the headers"
            yield f"ABI {major}.{minor}, {name}: {where}: {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--versions", type=Path, default=VERSIONS)
    options = parser.parse_args()

    complaints = list(check_present(options.compiler, options.versions))
    complaints += check_digests(options.versions)
    folders = sorted(path for path in options.versions.iterdir() if path.is_dir())
    with tempfile.TemporaryDirectory() as work:
        for folder in folders:
            wrong = run_client(folder, options.library, options.compiler, work)
            if wrong:
                complaints.append(f"ABI {folder.name}: {wrong}")
    for complaint in complaints:
        print(complaint)
    print(f"clients of {len(folders)} accepted versions: "
          + ", ".join(folder.name for folder in folders))
    return 1 if complaints or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
