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
}

// By one thread of the last kernel of a call. Host memory gets plain stores alone: not every bus
// has atomic operations on it.
ATTN_DEVICE void end_call(FaultState* state, FaultRecord* record) {
  const u32 raised = state->raised;
  if (raised == 0) return;
  state->latch = raised;
  __threadfence_system();  // the record's other fields come first
  *(volatile u32*)&record->bits = raised;
}

}  // namespace attnk
