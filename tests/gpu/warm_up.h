// Compiles kernels beforehand, many at once: NVRTC takes seconds for one.
#pragma once

#include <vector>

#include "gpu/device.h"
#include "gpu/specialisation.h"

namespace attn::gpu {

// Prepares one plan of every engine for each specialisation, on threads of its own; each
// specialisation once a process. Throws with the words of the first that fails.
void warm_up(const Gpu& gpu, const std::vector<Specialisation>& specs);

// Workers that a test may use.
int worker_count();

}  // namespace attn::gpu
