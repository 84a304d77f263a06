// Raising faults: a bit in the session's word, and the first one's record in pinned host memory.
#pragma once

#include "common/device.h"

namespace attnk {

ATTN_DEVICE void raise_fault(FaultState* state, FaultRecord* record, u32 bits, u32 label, i64 batch,
                             i64 value) {
  atomicOr(&state->raised, bits);
  volatile FaultRecord* out = record;
  if (atomicCAS(&state->first_claim, 0u, 1u) == 0u) {
    out->label = label;
    out->batch = batch;
    out->value = value;
  }
  __threadfence_system();
  atomicOr_system(&record->bits, bits);
}

// By one thread of the last kernel of a call.
ATTN_DEVICE void end_call(FaultState* state) { state->latch |= state->raised; }

}  // namespace attnk
