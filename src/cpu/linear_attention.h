// Engines of linear attention on the CPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/cost.h"
#include "core/linear_attention.h"
#include "cpu/engine.h"

namespace attn::cpu {

// Solves LinearAttentionProblem (the conventions of engine.h).
class LinearAttentionEngine {
 public:
  virtual ~LinearAttentionEngine() = default;
  virtual const char* name() const = 0;
  virtual bool supports(const LinearAttentionSpec& spec, SimdLevel level,
                        std::string* why_not) const = 0;
  // Whether this engine is expected to be the fastest for supported calls of so many tokens. Any
  // engine that supports a spec runs any number of them.
  virtual bool prefers(const LinearAttentionSpec& spec, int64_t tokens, SimdLevel level) const = 0;
  // Scratch for any problem of this spec; it does not grow with the tokens.
  virtual size_t workspace_bytes(const LinearAttentionSpec& spec, int concurrency,
                                 SimdLevel level) const = 0;
  virtual void run(const LinearAttentionProblem& problem, std::span<std::byte> scratch,
                   Executor& executor, SimdLevel level) const = 0;
};

// "chunked": many tokens, as products of matrices. Unit channel strides, no decay a key channel.
const LinearAttentionEngine& chunked_engine();
// "recurrent": vectors of state columns, one pass over the state a token. Unit channel strides.
const LinearAttentionEngine& recurrent_engine();
// "recurrent-serial": everything, in plain C++ with sums in double.
const LinearAttentionEngine& recurrent_serial_engine();

// flops = B * T * Hkv * dk * dv * (2 + 2 * outputs of a state + 2 with the delta rule + 1 with a
// decay); bytes = each of query, key, value, gates and output once, and each bound state once.
Cost linear_attention_cost(const LinearAttentionSpec& spec, const ShapeRange& range);

}  // namespace attn::cpu
