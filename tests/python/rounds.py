"""Ten thousand rounds of create, bind, execute and release in Python, and a thousand that fail on
the way: the library's counters return to where they were, and the process does not grow.
"""

import gc
import os
import sys

import numpy as np

import attn_c

ROUNDS = 10_000
ERROR_EVERY = 10
MAX_GROWTH = 1 << 20  # bytes, over the second half
LIVE = ("plans_live", "ops_live", "sessions_live", "bindings_live", "scratch_bytes")


def resident_bytes():
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Round:
    """What every round uses: three tokens, two query heads that share a key/value head."""

    def __init__(self):
        self.context = attn_c.Context("cpu", thread_count=1)
        self.packed = np.full((1, 3, 16), 0.25, np.float32)
        self.total = np.array(3, np.int32)
        self.failures = 0

    def run(self, number):
        """One round, and with every tenth another that has a length which execute refuses."""
        if number % ERROR_EVERY == 0:
            self.once(number, True)
        self.once(number, False)

    def once(self, number, wrong):
        """One round."""
        op = self.context.op("com.microsoft", "GroupQueryAttention", label=f"round {number}",
                             num_heads=2, kv_num_heads=1)
        inputs = {"query": self.packed, "seqlens_k": np.array([9 if wrong else 2], np.int32),
                  "total_sequence_length": self.total}
        output = self.context.empty((1, 3, 8))
        try:
            with op.bind(None, inputs, {"output": output}) as binding:
                binding.prepare()
                binding.execute()
            if number % 3 == 0:
                plan = op.prepare(inputs, {"output": output})
                plan.execute(inputs, {"output": output}, session=self.context.session())
                np.from_dlpack(output)
        except attn_c.InvalidArgument as error:
            assert wrong and "seqlens_k" in str(error), error
            self.failures += 1
            return
        assert not wrong, "a length that is wrong was accepted"


def main():
    rounds = Round()

    def half(begin, end):
        for number in range(begin, end):
            rounds.run(number)
        gc.collect()

    half(0, 100)
    rounds.context.trim()
    before = rounds.context.stats
    half(100, ROUNDS // 2)
    middle = resident_bytes()
    half(ROUNDS // 2, ROUNDS)
    growth = resident_bytes() - middle
    rounds.context.trim()
    after = rounds.context.stats
    changed = [f"{name}: {getattr(before, name)} at the start, {getattr(after, name)} at the end"
               for name in LIVE if getattr(before, name) != getattr(after, name)]
    print(f"{ROUNDS} rounds and {rounds.failures} with an error; {growth} bytes of growth in the "
          f"second half; {after.executions} executions")
    for text in changed:
        print(f"FAILED {text}")
    good = not changed and growth < MAX_GROWTH and rounds.failures == ROUNDS // ERROR_EVERY
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
