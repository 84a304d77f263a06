"""Makes the NuGet package and uses it as a program does that restored it.

The zip has the parts that NuGet looks for, each with a type. For .NET 8 it is extracted into a
package folder, and a program is started with the .deps.json that the SDK would write: the host
finds assembly and native part there and nowhere else. For Mono the files are put where it looks.
Both run the golden cases. Where a NuGet client is on the machine (Debian's `nuget`), it installs
the package from a folder, and what it puts there is what the zip holds.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import zipfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))

import run_csharp  # noqa: E402

MAX_BYTES = 20 << 20
NATIVE = "runtimes/linux-x64/native"
PARTS = {"[Content_Types].xml", "_rels/.rels", "AttnC.nuspec", "README.md", "LICENSE",
         "THIRD_PARTY_NOTICES.md", "lib/net472/AttnC.dll", "lib/net472/AttnC.xml",
         "lib/net8.0/AttnC.dll", "lib/net8.0/AttnC.xml",
         f"{NATIVE}/libattn_c.so.0", f"{NATIVE}/libattn_c_csharp.so"}
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("LD_", "MONO_", "ATTN_C_"))}


def names_of(xml, tag, attribute):
    return [one.get(attribute) for one in ElementTree.fromstring(xml).iter()
            if one.tag.endswith("}" + tag)]


def check_parts(package):
    """Findings on what is in the zip."""
    names = set(package.namelist())
    properties = [name for name in names if name.endswith(".psmdcp")]
    different = (PARTS | set(properties)) ^ names
    findings = [f"not both expected and there: {', '.join(sorted(different))}"] if different else []
    types = package.read("[Content_Types].xml")
    suffixes = set(names_of(types, "Default", "Extension"))
    parts = set(names_of(types, "Override", "PartName"))
    findings += [f"{name} has no type" for name in names - {"[Content_Types].xml"}
                 if Path(name).suffix[1:] not in suffixes and f"/{name}" not in parts
                 and name != "_rels/.rels"]
    targets = {target[1:] for target in names_of(package.read("_rels/.rels"), "Relationship",
                                                 "Target")}
    if targets != {"AttnC.nuspec", *properties} or len(properties) != 1:
        findings.append(f"the relations name {sorted(targets)}")
    if b"<files>" in package.read("AttnC.nuspec"):
        findings.append("AttnC.nuspec still lists source files")
    return findings


def deps(version):
    """What the SDK writes beside a program for a restored package."""
    name, target = f"AttnC/{version}", ".NETCoreApp,Version=v8.0"
    natives = {f"{NATIVE}/{file}": {"rid": "linux-x64", "assetType": "native"}
               for file in ("libattn_c.so.0", "libattn_c_csharp.so")}
    return {
        "runtimeTarget": {"name": target},
        "targets": {target: {
            "Golden/1.0.0": {"dependencies": {"AttnC": version}, "runtime": {"Golden.exe": {}}},
            name: {"runtime": {"lib/net8.0/AttnC.dll": {}}, "runtimeTargets": natives}}},
        "libraries": {
            "Golden/1.0.0": {"type": "project", "serviceable": False, "sha512": ""},
            name: {"type": "package", "serviceable": False, "sha512": "",
                   "path": f"attnc/{version}"}}}


def run(runtime, folder, program, cases, version):
    """The command that runs the program with the package, and its environment; None: it skips."""
    package = folder / "packages" / "attnc" / version
    if runtime == "mono":
        shutil.copy(package / "lib" / "net472" / "AttnC.dll", folder)
        return ["mono", str(program), str(cases)], {"LD_LIBRARY_PATH": str(package / NATIVE)}
    listing, configuration = folder / "Golden.deps.json", folder / "Golden.runtimeconfig.json"
    listing.write_text(json.dumps(deps(version)), encoding="utf-8")
    configuration.write_text(json.dumps(run_csharp.CONFIGURATION), encoding="utf-8")
    return [run_csharp.dotnet(), "exec", "--runtimeconfig", str(configuration),
            "--depsfile", str(listing), "--additionalprobingpath", str(folder / "packages"),
            str(program), str(cases)], {}


def consume(runtime, archive, options, version):
    """Findings on one runtime; None where it is not on this machine."""
    if (shutil.which("mono") if runtime == "mono" else run_csharp.dotnet()) is None:
        return None
    folder = options.work / runtime
    shutil.rmtree(folder, ignore_errors=True)
    archive.extractall(folder / "packages" / "attnc" / version)
    program = Path(shutil.copy(options.build / "csharp" / "Golden.exe", folder))
    cases = ROOT / "tests" / "golden" / "cases"
    command, environment = run(runtime, folder, program, cases, version)
    done = subprocess.run(command, env={**CLEAN, **environment}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    good = sum(line.startswith("ok ") for line in done.stdout.splitlines())
    print(f"{runtime}: {good} golden cases by the package alone")
    wanted = len(list(cases.glob("*.json")))
    if done.returncode == 0 and good == wanted:
        return []
    return [f"{runtime}: {good} of {wanted} cases, exit code {done.returncode}",
            done.stdout[-2000:]]


def check_client(path, archive, options, version):
    """Findings on what NuGet's client makes of the package; None where there is none."""
    if shutil.which("nuget") is None:
        return None
    folder = options.work.resolve() / "nuget"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    shutil.copy(path, folder)
    # A home of its own: the client keeps what it installed before, by version, and takes that.
    done = subprocess.run(["nuget", "install", "AttnC", "-Version", version, "-Source", str(folder),
                           "-OutputDirectory", str(folder / "out")],
                          env={**CLEAN, "HOME": str(folder / "home"), "XDG_DATA_HOME": "",
                               "XDG_CONFIG_HOME": ""}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    installed = folder / "out" / path.stem
    if done.returncode != 0 or not installed.is_dir():
        return [f"nuget install: exit code {done.returncode}", done.stdout[-2000:]]
    there = {one.relative_to(installed).as_posix(): one for one in installed.rglob("*")
             if one.is_file()}
    print(f"NuGet's client: {len(there)} files installed")
    # Of what describes the package it leaves the package itself.
    return [f"nuget install: {name} is not as in the package" for name in sorted(PARTS)
            if not name.startswith(("[", "_")) and name != "AttnC.nuspec"
            and (name not in there or there[name].read_bytes() != archive.read(name))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    def make():
        subprocess.run(["cmake", "--build", str(options.build), "--target", "attn_c_nupkg"],
                       check=True, stdout=subprocess.DEVNULL)
        return next((options.build / "nuget").glob("AttnC.*.nupkg"))

    path = make()
    first = path.read_bytes()
    findings = [] if make().read_bytes() == first else ["the same files give other bytes"]
    if len(first) > MAX_BYTES:
        findings.append(f"{len(first)} bytes, at most {MAX_BYTES}")
    version = path.stem.removeprefix("AttnC.")
    with zipfile.ZipFile(path) as archive:
        findings += check_parts(archive)
        outcomes = [consume(runtime, archive, options, version) for runtime in ("mono", "dotnet")]
        client = check_client(path, archive, options, version)
    findings += [finding for outcome in [*outcomes, client] if outcome for finding in outcome]
    for finding in findings:
        print(finding)
    if not findings and None in outcomes:
        print("skipped in part: mono or .NET 8 is not there")
    if client is None:
        print("skipped in part: no NuGet client is there (Debian's package nuget has one)")
    print(f"{path.name}: {len(first)} bytes")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
