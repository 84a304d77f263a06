// Name and instruction sets of an x86 processor, by the CPUID instruction.
#include <cpuid.h>

#include <cstring>

#include "cpu/cpu_info.h"

namespace attn::cpu::detail {
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return Registers{};
  return r;
}

bool bit(unsigned word, int index) { return ((word >> index) & 1u) != 0; }

// The 48 characters of leaves 0x80000002..4, without the padding around them.
std::string brand() {
  char text[49] = {};
  for (unsigned part = 0; part < 3; ++part) {
    const Registers r = cpuid(0x80000002u + part, 0);
    std::memcpy(text + 16 * part, &r, 16);
  }
  std::string name = text;
  while (!name.empty() && name.back() == ' ') name.pop_back();
  name.erase(0, name.find_first_not_of(' '));
  return name.empty() ? "x86-64 processor" : name;
}

}  // namespace

void detect_features(CpuInfo& info) {
  info.name = brand();
  info.architecture = "x86-64";
  const Registers basic = cpuid(1, 0);
  const Registers extended = cpuid(7, 0);
  const Registers more = cpuid(7, 1);

  // What the operating system saves at a task switch: without it the registers must not be used.
  unsigned state = 0;
  if (bit(basic.ecx, 27)) {
    unsigned high;
    asm volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
  }
  const bool ymm = (state & 0x6) == 0x6;
  const bool zmm = (state & 0xe6) == 0xe6;
  const bool tiles = (state & 0x60000) == 0x60000;

  const auto add = [&info](bool present, const char* name) {
    if (present) info.instruction_sets.emplace_back(name);
  };
  add(bit(basic.ecx, 19), "sse4.1");
  add(bit(basic.ecx, 20), "sse4.2");
  add(ymm && bit(basic.ecx, 28), "avx");
  add(ymm && bit(extended.ebx, 5), "avx2");
  add(ymm && bit(basic.ecx, 12), "fma");
  add(ymm && bit(basic.ecx, 29), "f16c");
  add(zmm && bit(extended.ebx, 16), "avx512f");
  add(zmm && bit(extended.ebx, 30), "avx512bw");
  add(zmm && bit(extended.ebx, 17), "avx512dq");
  add(zmm && bit(extended.ebx, 31), "avx512vl");
  add(zmm && bit(extended.ecx, 11), "avx512_vnni");
  add(zmm && bit(more.eax, 5), "avx512_bf16");
  add(zmm && bit(extended.edx, 23), "avx512_fp16");
  add(tiles && bit(extended.edx, 24), "amx_tile");
  add(tiles && bit(extended.edx, 25), "amx_int8");
  add(tiles && bit(extended.edx, 22), "amx_bf16");
  add(tiles && bit(more.eax, 21), "amx_fp16");
}

}  // namespace attn::cpu::detail
