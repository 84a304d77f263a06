// Engines that rotate a tensor by itself: RotaryProblem.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/backend.h"
#include "core/rotary_problem.h"
#include "cpu/engine.h"

namespace attn::cpu {

// Solves RotaryProblem; the conventions are those of engine.h. Positions were checked before.
class RotaryEngine {
 public:
  virtual ~RotaryEngine() = default;
  virtual const char* name() const = 0;
  virtual bool supports(const RotarySpec& spec, SimdLevel level, std::string* why_not) const = 0;
  virtual size_t workspace_bytes(const RotarySpec& spec, const ShapeRange& range, int concurrency,
                                 SimdLevel level) const = 0;
  virtual void run(const RotaryProblem& problem, std::span<std::byte> scratch, Executor& executor,
                   SimdLevel level) const = 0;
};

// "simd-rotary": channels and table columns side by side, at any level but generic.
const RotaryEngine& simd_rotary_engine();

// "generic-rotary": any strides. The same bits as the SIMD engine, and as keys and queries that are
// rotated on their way into a cache or an attention.
const RotaryEngine& generic_rotary_engine();

}  // namespace attn::cpu
