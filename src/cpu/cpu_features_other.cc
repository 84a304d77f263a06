// Name of a processor that is no x86: what the system says of the machine.
#include <sys/utsname.h>

#include "cpu/cpu_info.h"

namespace attn::cpu::detail {

void detect_features(CpuInfo& info) {
  utsname machine{};
  info.architecture = uname(&machine) == 0 ? machine.machine : "unknown";
  info.name = info.architecture + " processor";
  if (info.architecture == "aarch64")
    info.instruction_sets.emplace_back("neon");  // mandatory there
}

}  // namespace attn::cpu::detail
