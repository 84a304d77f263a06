// How the matrix draws GroupQueryAttention.
#pragma once

#include "matrix/gqa_case.h"
#include "matrix/matrix.h"

namespace attn::matrix {

inline MatrixOptions gqa_matrix_options(const DrawOptions& draw = {}) {
  MatrixOptions options;
  options.tool = "gqa_matrix";
  options.engines = {"simd-prefill",        "simd-decode",       "generic",
                     "simd-kv-update",      "generic-kv-update", "amx-prefill",
                     "amx-prefill-emulated"};
  options.draw = [draw](uint64_t seed) { return std::make_unique<GqaCase>(draw_case(seed, draw)); };
  return options;
}

}  // namespace attn::matrix
