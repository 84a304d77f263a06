// ai.onnx RotaryEmbedding in float64, written from the operator's contract.
#pragma once

#include <vector>

#include "support/view.h"

namespace attn::reference {

struct RotaryEmbedding {
  bool interleaved = false;
  int64_t rotary_embedding_dim = 0;  // 0: the whole head
  int64_t num_heads = 0;             // of a rank 3 x

  test::View x;             // (B, H, S, D) or (B, S, H*D)
  test::View cos, sin;      // (positions, width/2), or (B, S, width/2) without positions
  test::View position_ids;  // (B, S) or unbound

  bool heads_apart() const { return x.shape.size() == 4; }
  int64_t batch() const { return x.dim(0); }
  int64_t heads() const { return heads_apart() ? x.dim(1) : num_heads; }
  int64_t rows() const { return heads_apart() ? x.dim(2) : x.dim(1); }
  int64_t head_size() const { return heads_apart() ? x.dim(3) : x.dim(2) / num_heads; }
};

// The result in row-major order of X's shape, each number as X's type holds it. Every product and
// sum is rounded to float32 by itself, and 16-bit results once more at the end: there is one right
// bit pattern. A batch row with a position outside the tables is zero, as a device leaves it. Reads
// x, so call it before a call in place.
std::vector<double> run(const RotaryEmbedding& problem);

// The batch rows that have a position outside the tables.
std::vector<bool> bad_batch_rows(const RotaryEmbedding& problem);

}  // namespace attn::reference
