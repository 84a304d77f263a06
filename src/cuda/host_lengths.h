// Lengths and the host: checks that the host makes, and lengths that lie in its memory.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "cuda/kernel_store.h"

namespace attn::cuda {

// Bytes of scratch for the lengths of `batch` rows that come from host memory.
inline size_t stored_lengths_bytes(int64_t batch) {
  return (static_cast<size_t>(batch) * sizeof(int32_t) + 255) / 256 * 256;
}

// Checks lengths in host memory as far as the host can read what they are held against. Throws
// INVALID_ARGUMENT as core/lengths.h does.
void check_host_lengths(const Lengths& lengths);

// For plans that check on the host: copies lengths, bound and positions from the device, waits for
// the stream and checks them all. Throws INVALID_ARGUMENT, DEVICE.
void check_device_lengths(const CudaContext& context, const Lengths& lengths, CUstream stream);

// Queues launches that carry the lengths from host memory to `out` (batch values side by side).
// The host memory is not needed after the call.
void store_lengths(const Driver& driver, const LoadedKernel& kernel, const Lengths& lengths,
                   CUdeviceptr out, CUstream stream);

}  // namespace attn::cuda
