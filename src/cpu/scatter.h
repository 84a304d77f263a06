// Engines that write rows into a cache: ScatterProblem.
#pragma once

#include <string>

#include "core/scatter_problem.h"
#include "cpu/engine.h"

namespace attn::cpu {

// Solves ScatterProblem; the conventions are those of engine.h. Write indices were checked before,
// and no scratch is needed.
class ScatterEngine {
 public:
  virtual ~ScatterEngine() = default;
  virtual const char* name() const = 0;
  virtual bool supports(const ScatterSpec& spec, SimdLevel level, std::string* why_not) const = 0;
  virtual void run(const ScatterProblem& problem, Executor& executor) const = 0;
};

// "block-scatter": the innermost axis lies side by side; moves whole runs of memory.
const ScatterEngine& block_scatter_engine();

// "generic-scatter": any strides, an element at a time.
const ScatterEngine& generic_scatter_engine();

}  // namespace attn::cpu
