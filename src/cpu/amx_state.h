// Whether this process may use the AMX tile registers with bfloat16 products.
#pragma once

#include <string>

namespace attn::cpu {

struct AmxState {
  bool usable = false;
  std::string reason;  // why not: "this processor has no AMX bfloat16 products"; else empty
};

// The first call asks the operating system for the registers, where the processor has them: Linux
// gives them to a process that asks, from 5.16 on, and to all of its threads. Thread-safe; the
// answer never changes. One file an architecture (amx_state_*.cc).
const AmxState& amx_state();

}  // namespace attn::cpu
