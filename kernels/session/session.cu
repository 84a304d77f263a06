// Small kernels of a session: apart from the large ones, since it needs them before any plan.
#include "common/faults.h"

namespace attnk {

// Lengths that the caller has in host memory, carried by the launch itself. One thread a value.
extern "C" __global__ void attn_store_lengths(const __grid_constant__ StoreLengthsParams p) {
  if (threadIdx.x < p.count) p.out[threadIdx.x] = p.values[threadIdx.x];
}

// Ends a call that has no attention kernel. One thread.
extern "C" __global__ void attn_end_call(FaultState* state, FaultRecord* record) {
  end_call(state, record);
}

// Ends a poisoning. One thread.
extern "C" __global__ void attn_clear_faults(FaultState* state, FaultRecord* record) {
  state->latch = 0;
  state->raised = 0;
  state->call_poisoned = 0;
  state->first_claim = 0;
  volatile FaultRecord* out = record;
  out->bits = 0;
  out->label = 0;
  out->batch = 0;
  out->value = 0;
  __threadfence_system();
}

}  // namespace attnk
