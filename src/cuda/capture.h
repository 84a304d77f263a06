// Whether a stream records what is put into it.
#pragma once

#include "cuda/driver_api.h"

namespace attn::cuda {

struct Capture {
  bool active = false;
  CUgraph graph = nullptr;  // being recorded, where active
};

// Throws CAPTURE where the stream cannot be used: the legacy default one beside a capture in global
// mode, or one whose capture an earlier error has ended. The CUDA context must be current.
Capture capture_of(const Driver& driver, CUstream stream);

}  // namespace attn::cuda
