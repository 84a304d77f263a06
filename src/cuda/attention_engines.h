// The attention kernels as engines: what each supports, how it is specialised, how it is launched.
#pragma once

#include <span>
#include <string>

#include "common/params.h"
#include "core/backend.h"
#include "cuda/cuda_context.h"
#include "cuda/kernel_variant.h"

namespace attn::cuda {

// Query rows that the decode engine takes, of each head.
inline constexpr int64_t kDecodeQueries = 8;

// What one launch of an attention kernel needs beyond its parameters.
struct LaunchShape {
  int64_t blocks = 0;
  int64_t splits = 1;
  int64_t tile_rows = 1;  // query rows of a prefill block's tile
};

class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;
  virtual const char* name() const = 0;
  // Whether every problem of this spec can run; else one line why not.
  virtual bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                        std::string* why_not) const = 0;
  // Whether it takes so many query rows of a sequence, where strides and addresses are aligned: a
  // plan leaves out the engines that no call of its range comes to.
  virtual bool takes_rows(const AttentionSpec& spec, int64_t rows) const = 0;
  // Whether it takes these shapes, strides and addresses.
  virtual bool accepts(const AttentionProblem& problem) const = 0;
  // The kernel for this spec, in tiles that fit the device's shared memory where such tiles exist.
  virtual KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const = 0;
  // Bytes of partial results for any problem in the range. `batch_invariant`, here and below: the
  // cut of a sequence follows from the sequence alone.
  virtual size_t partial_bytes(const AttentionSpec& spec, const ShapeRange& range,
                               const DeviceTraits& device, bool batch_invariant) const = 0;
  virtual LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                            bool batch_invariant) const = 0;
  // For describe.
  virtual std::string summary(const AttentionSpec& spec, const DeviceTraits& device) const = 0;
};

// Each in a file of its own.
const AttentionEngine& split_decode_engine();
const AttentionEngine& wgmma_prefill_engine();
const AttentionEngine& mma_prefill_engine();
const AttentionEngine& float32_prefill_engine();
const AttentionEngine& generic_engine();

// In order of preference.
std::span<const AttentionEngine* const> attention_engines();

}  // namespace attn::cuda
