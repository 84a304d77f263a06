"""Installs the library into an empty folder, moves it, and uses it from a project of its own.

Once through the CMake package AttnC::attn_c, once through attn_c.pc. Moving proves that no path of
the build machine is in what was installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSUMER = HERE / "consumer"


def run(*command, **environment):
    """Runs a command, with more environment; its output is shown only if it fails."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}")
    return done.stdout


def use_cmake_package(prefix, work, compiler):
    run("cmake", "-S", CONSUMER, "-B", work, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={compiler}")
    run("cmake", "--build", work)
    run(work / "consumer")


def use_pkg_config(prefix, work, compiler, libdir):
    if shutil.which("pkg-config") is None:
        print("pkg-config is not there: attn_c.pc was not tried")
        return
    work.mkdir()
    path = str(prefix / libdir / "pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "attn_c", PKG_CONFIG_PATH=path).split()
    run(compiler, "-std=c99", CONSUMER / "consumer.c", "-o", work / "consumer", *flags)
    run(work / "consumer", LD_LIBRARY_PATH=str(prefix / libdir))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="the build folder to install")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--libdir", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    first, prefix = options.work / "first", options.work / "moved"
    run("cmake", "--install", options.build, "--prefix", first, "--component", "attn_c")
    first.rename(prefix)

    installed = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*")
                       if path.is_file() or path.is_symlink())
    print("\n".join(installed))
    for path in prefix.rglob("*"):
        if path.is_file() and str(options.build).encode() in path.read_bytes():
            sys.exit(f"{path.name} names the build folder")
    use_cmake_package(prefix, options.work / "cmake", options.compiler)
    use_pkg_config(prefix, options.work / "pkg-config", options.compiler, options.libdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
