// From problems to the parameter blocks of the kernels. Runs on every execute: no allocation.
#pragma once

#include "common/packed_params.h"
#include "common/params.h"
#include "core/problem.h"

namespace attn::cuda {

void fill_lengths(const Lengths& lengths, attnk::LengthParams& out);
void fill_kv_update(const KvUpdateProblem& problem, attnk::KvUpdateParams& out);
// The kernels' number of an element type.
int type_number(DType type);

attnk::View kernel_view(const View4& v);

// Without the kernel's tile, rows and faults.
void fill_packed(const Lengths& lengths, const AttentionProblem& problem, attnk::PackedParams& out);
void fill_attention(const AttentionProblem& problem, attnk::AttentionParams& out);

}  // namespace attn::cuda
