// Lengths and the host: checks that the host makes, and lengths that lie in its memory.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "cuda/kernel_store.h"

namespace attn::cuda {

// Whether some of the lengths lie in host memory: a launch then carries them to the device.
inline bool are_on_host(const LengthSpec& spec) {
  const bool keys = spec.rule == LengthRule::kCumulative && spec.bound == Placement::kHost;
  return spec.values == Placement::kHost || keys;
}

// Bytes of scratch for the lengths of `batch` rows that come from host memory: a value a row, or
// the ends of packed queries and then of keys.
inline size_t stored_lengths_bytes(LengthRule rule, int64_t batch) {
  const size_t rows = static_cast<size_t>(batch);
  const size_t values = rule == LengthRule::kCumulative ? 2 * (rows + 1) : rows;
  return (values * sizeof(int32_t) + 255) / 256 * 256;
}

// Checks lengths in host memory as far as the host can read what they are held against. Throws
// INVALID_ARGUMENT as core/lengths.h does.
void check_host_lengths(const Lengths& lengths);

// For plans that check on the host: copies lengths, bound and positions from the device, waits for
// the stream and checks them all. Throws INVALID_ARGUMENT, DEVICE.
void check_device_lengths(const CudaContext& context, const Lengths& lengths, CUstream stream);

// Queues launches that carry the lengths from host memory to `out` (the values side by side, as
// int32), which `lengths` then names in place of the host's. The host memory is not needed after
// the call.
void store_lengths(const Driver& driver, const LoadedKernel& kernel, Lengths& lengths,
                   CUdeviceptr out, CUstream stream);

}  // namespace attn::cuda
