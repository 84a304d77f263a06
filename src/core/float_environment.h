// The floating-point modes that kernels compute under.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace attn {

// While one lives, its thread rounds to nearest, keeps subnormal numbers and traps nothing; after
// it the thread's own modes and exception flags are back. Hosts that flush subnormal numbers, round
// otherwise or trap exceptions get the same bits as others. Where the modes are right already
// nothing is set.
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(modes()) {
    if ((saved_ & ~kFlags) != kModes) set_modes(kModes);
  }
  ~FloatEnvironment() {
    if (modes() != saved_) set_modes(saved_);  // exception flags of what was computed included
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  using Modes = uint32_t;
  static constexpr Modes kModes = 0x1f80;  // MXCSR after reset: all exceptions masked
  static constexpr Modes kFlags = 0x3f;
  static Modes modes() { return _mm_getcsr(); }
  static void set_modes(Modes modes) { _mm_setcsr(modes); }
#elif defined(__aarch64__)
  using Modes = uint64_t;
  static constexpr Modes kModes = 0;  // FPCR
  static constexpr Modes kFlags = 0;  // in a register of their own
  static Modes modes() {
    Modes modes;
    asm volatile("mrs %0, fpcr" : "=r"(modes));
    return modes;
  }
  static void set_modes(Modes modes) { asm volatile("msr fpcr, %0" : : "r"(modes)); }
#endif

  const Modes saved_;
};

}  // namespace attn
