// Rows in pieces of 16 bytes: how threads share them, and a piece's elements as floats.
#pragma once

#include "common/device.h"

namespace attnk {

template <int type>
struct Piece {
  static constexpr int elements = 16 / ElementBytes<type>::value;
};

// What one of `threads` threads treats of many rows of `units` units each (a unit may be a piece,
// several, or an element): rows row, row + rows, ..., and of each the units unit, unit + threads...
// Rows of fewer units than threads are treated several at once; threads that are left over then
// have a row beyond all.
struct Share {
  int rows, row, unit;
};
ATTN_DEVICE Share share_rows(int thread, int threads, int units) {
  if (units >= threads) return {1, 0, thread};
  const int rows = (int)((u32)threads / (u32)units);
  const int row = (int)((u32)thread / (u32)units);
  return {rows, row < rows ? row : 1 << 30, thread - row * units};
}

template <int type>
ATTN_DEVICE void widen_piece(const uint4& piece, float (&x)[Piece<type>::elements]) {
  const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (type == kTypeFloat32) {
      x[i] = bits_to_float(words[i]);
    } else if constexpr (type == kTypeFloat16) {
      x[2 * i] = half_to_float((u16)words[i]);
      x[2 * i + 1] = half_to_float((u16)(words[i] >> 16));
    } else {
      x[2 * i] = bits_to_float(words[i] << 16);
      x[2 * i + 1] = bits_to_float(words[i] & 0xffff0000u);
    }
  }
}

// Rounds to the type, once.
template <int type>
ATTN_DEVICE uint4 narrow_piece(const float (&x)[Piece<type>::elements]) {
  u32 words[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (type == kTypeFloat32) {
      words[i] = float_to_bits(x[i]);
    } else {
      words[i] = pack2<type>(x[2 * i], x[2 * i + 1]);
    }
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

}  // namespace attnk
