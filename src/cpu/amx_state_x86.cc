// The processor is asked by CPUID, the kernel by arch_prctl.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "cpu/amx_state.h"
#include "cpu/cpu_info.h"

namespace attn::cpu {
namespace {

// Of the kernel's interface (asm/prctl.h, which older systems have without these).
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // the number of the state that tiles are

bool has(const char* instruction_set) {
  const auto& sets = cpu_info().instruction_sets;
  return std::find(sets.begin(), sets.end(), instruction_set) != sets.end();
}

AmxState ask() {
  AmxState state;
  // These are listed only where the operating system saves tile registers.
  if (!has("amx_tile") || !has("amx_bf16")) {
    state.reason = "this processor, or its operating system, has no AMX bfloat16 products";
    return state;
  }
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    state.reason = cat("the operating system does not let this process use AMX: ",
                       std::generic_category().message(errno));
    return state;
  }
  state.usable = true;
  return state;
}

}  // namespace

const AmxState& amx_state() {
  static const AmxState state = ask();
  return state;
}

}  // namespace attn::cpu
