// The text of every file under kernels/, built into the library.
#pragma once

#include <span>
#include <string>

namespace attn::cuda {

struct KernelSource {
  const char* name;  // "softmax/attention_mma.cu", "common/types.h"
  const char* text;
};

// Sorted by name. Made at build time.
std::span<const KernelSource> kernel_sources();

}  // namespace attn::cuda
