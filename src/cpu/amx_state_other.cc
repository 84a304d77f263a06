// AMX is a unit of x86 processors.
#include "cpu/amx_state.h"

namespace attn::cpu {

const AmxState& amx_state() {
  static const AmxState state{false, "AMX is a unit of x86-64 processors"};
  return state;
}

}  // namespace attn::cpu
