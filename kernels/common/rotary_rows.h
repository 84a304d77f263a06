// Rotary embedding, without norm, in pieces of 16 bytes: to the bit what transform_row gives, for
// rows that TransformParams::in_pieces says it is possible for (and that begin on 16 bytes).
//
// Two pieces of a row are turned together. Half-split: pieces u and u + width / 2, whose elements
// are partners. Interleaved: pieces 2u and 2u + 1. Either way they need the same elements of the
// tables: a piece's worth, from u pieces on. Pieces at or beyond the width pass through, also two
// by two; a row's last piece may be alone.
#pragma once

#include "common/pieces.h"
#include "common/row_transform.h"

namespace attnk {

struct PairPlace {
  int first, second;  // pieces of the row; `second` may lie just behind its end
  bool turns;         // inside the width
};

template <int type>
ATTN_DEVICE PairPlace pair_place(const TransformParams& t, int u) {
  const int half = t.width / (2 * Piece<type>::elements);
  if (t.interleaved || u >= half) return {2 * u, 2 * u + 1, u < half};
  return {u, u + half, true};
}

// Two pieces of a row on their way: what was loaded, so that several can be under way.
template <int type>
struct PiecePair {
  // Table elements of a pair: float32 ones are two pieces under 16-bit rows.
  static constexpr int kElements = Piece<type>::elements, kTable = type == kTypeFloat32 ? 1 : 2;
  uint4 x[2], cos[kTable], sin[kTable];

  // `row` is the row's address and `pieces` its number of pieces, `place` and u as above,
  // `position` a row of the tables or -1: not turned.
  __device__ __forceinline__ void load(const TransformParams& t, const uint4* row, int pieces,
                                       PairPlace place, int u, i64 position) {
    x[0] = load_once(row + place.first);
    x[1] = place.second < pieces ? load_once(row + place.second) : uint4{0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kTable; i++) cos[i] = sin[i] = uint4{0, 0, 0, 0};
    if (position < 0) return;
    const bool wide = kTable == 2 && t.table_type == kTypeFloat32;
    const i64 bytes = type == kTypeFloat32 || wide ? 4 : 2;
    const u8* c = (const u8*)t.cos + (position * t.cos_row + u * kElements) * bytes;
    const u8* s = (const u8*)t.sin + (position * t.sin_row + u * kElements) * bytes;
    cos[0] = __ldg((const uint4*)c);
    sin[0] = __ldg((const uint4*)s);
    if (wide) {
      cos[kTable - 1] = __ldg((const uint4*)c + 1);
      sin[kTable - 1] = __ldg((const uint4*)s + 1);
    }
  }

  // The pair as it is stored.
  __device__ __forceinline__ void finish(const TransformParams& t, i64 position,
                                         uint4 (&out)[2]) const {
    constexpr int n = kElements;
    float a[n], b[n];
    widen_piece<type>(x[0], a);
    widen_piece<type>(x[1], b);
    if (position >= 0) {
      float c[n], s[n];
      widen_table(t, cos, c);
      widen_table(t, sin, s);
      if (t.interleaved) {
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
          turn(a[2 * i], a[2 * i + 1], c[i], s[i]);
          turn(b[2 * i], b[2 * i + 1], c[i + n / 2], s[i + n / 2]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < n; i++) turn(a[i], b[i], c[i], s[i]);
      }
    }
    out[0] = narrow_piece<type>(a);
    out[1] = narrow_piece<type>(b);
  }

  static __device__ __forceinline__ void widen_table(const TransformParams& t,
                                                     const uint4 (&raw)[kTable],
                                                     float (&out)[kElements]) {
    if (kTable == 2 && t.table_type == kTypeFloat32) {
#pragma unroll
      for (int k = 0; k < kTable; k++) {
        float four[4];
        widen_piece<kTypeFloat32>(raw[k], four);
#pragma unroll
        for (int i = 0; i < 4; i++) out[4 * k + i] = four[i];
      }
    } else {
      widen_piece<type>(raw[0], out);
    }
  }
};

// Turns `rows` rows of `channels` channels, `stride` elements apart, by a group of `threads`
// threads of which the caller is number `thread`; `flight` pairs a thread are under way at once.
// Row r has number index + r in the call (of explicit positions) and implied position
// `position` + r. Calls store(r, piece, value) for every piece of every row; no barrier.
template <int type, int flight, class Store>
ATTN_DEVICE void rotate_rows(const TransformParams& t, const void* source, i64 stride, int rows,
                             int channels, i64 b, int index, int position, int thread, int threads,
                             const Store& store) {
  const int pieces = channels / Piece<type>::elements, units = (pieces + 1) / 2;
  const i64 row_bytes = stride * ElementBytes<type>::value;
  const Share share = share_rows(thread, threads, units);
  for (int u = share.unit; u < units; u += threads) {
    const PairPlace place = pair_place<type>(t, u);
#pragma unroll 1
    for (int first = share.row; first < rows; first += flight * share.rows) {
      i64 at[flight];
      PiecePair<type> pairs[flight];
#pragma unroll
      for (int k = 0; k < flight; k++) {
        const int r = first + k * share.rows;
        at[k] = r < rows && place.turns ? table_row(t, b, index + r, position + r) : -1;
      }
#pragma unroll
      for (int k = 0; k < flight; k++) {
        const int r = first + k * share.rows;
        if (r < rows) {
          const uint4* row = (const uint4*)((const u8*)source + r * row_bytes);
          pairs[k].load(t, row, pieces, place, u, at[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < flight; k++) {
        const int r = first + k * share.rows;
        if (r < rows) {
          uint4 out[2];
          pairs[k].finish(t, at[k], out);
          store(r, place.first, out[0]);
          if (place.second < pieces) store(r, place.second, out[1]);
        }
      }
    }
  }
}

}  // namespace attnk
