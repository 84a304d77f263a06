"""Lays out the NuGet package and uses it: what its .nuspec lists is there, and a program that has
the assembly alone beside it finds the native part in runtimes/linux-x64/native, on both runtimes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

RUN_CSHARP = Path(__file__).resolve().parent.parent / "tools" / "run_csharp.py"
SKIP = 77
NAMESPACE = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"


def listed(nuspec):
    """Files that the .nuspec takes, relative to its folder; each goes where it lies."""
    for entry in ElementTree.parse(nuspec).getroot().iter(f"{NAMESPACE}file"):
        source, target = Path(entry.get("src")), Path(entry.get("target"))
        if source.parent != target:
            sys.exit(f"{source} goes to {target}, not where it lies")
        yield source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    package = options.build / "nuget"
    subprocess.run(["cmake", "--build", str(options.build), "--target", "attn_c_nuget"], check=True,
                   stdout=subprocess.DEVNULL)
    files = set(listed(package / "AttnC.nuspec"))
    there = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    wrong = files ^ (there - {Path("AttnC.nuspec")})
    if wrong or not files:
        sys.exit("not both listed and there: " + ", ".join(sorted(map(str, wrong))))

    for runtime, framework in (("mono", "net472"), ("dotnet", "net8.0")):
        folder = options.work / runtime
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(package / "lib" / framework / "AttnC.dll", folder)
        shutil.copy(options.build / "csharp" / "DecodeLoop.exe", folder)
        native = package / "runtimes" / "linux-x64" / "native"
        code = subprocess.call([sys.executable, str(RUN_CSHARP), runtime,
                                str(folder / "DecodeLoop.exe")],
                               env={**os.environ, "LD_LIBRARY_PATH": str(native)})
        if code not in (0, SKIP):
            sys.exit(f"the package does not serve {runtime}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
