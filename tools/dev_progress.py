"""Says how far a long piece of work has come, so that nobody takes it for one that hangs."""

import re
import subprocess
import time

from dev_setup import say

NINJA_STATUS = re.compile(r"^\[(\d+)/(\d+)\] ")
NINJA_CHATTER = re.compile(r"^ninja: (no work to do|Entering directory|Leaving directory)")


class Progress:
    """One line every `every` seconds, none for work that is done before. Threads: one at a time."""

    def __init__(self, what, every=20, clock=time.monotonic):
        self.what, self.every, self.clock = what, every, clock
        self.begin = self.last = clock()

    def step(self, done, total):
        now = self.clock()
        if now - self.last < self.every or done >= total:
            return
        self.last = now
        say(f"{self.what}: {done} of {total} after {now - self.begin:.0f} s")


def show_ninja(lines, progress):
    """Prints what ninja printed but for its status, which becomes progress."""
    for line in lines:
        status = NINJA_STATUS.match(line)
        if status:
            progress.step(int(status[1]), int(status[2]))
        elif not NINJA_CHATTER.match(line):
            print(line, end="", flush=True)


def run_ninja(command, what, **options):
    """Runs a build with progress lines; its exit code."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          **options) as process:
        show_ninja(process.stdout, Progress(what))
    return process.returncode
