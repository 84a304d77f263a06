// Cuts floats into bfloat16 pieces and packs them into tiles (attention_amx.h), for one target.
#if defined(ATTN_AMX_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_PACK_INL_H_
#undef ATTN_AMX_PACK_INL_H_
#else
#define ATTN_AMX_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/attention_amx.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_pack-inl.h"
#include "cpu/simd_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// How numbers of the type E are cut. float32 is cut off, so that three pieces are exactly what they
// were and no piece leaves the range. The 16-bit types are rounded, which makes what is left out
// smaller and of either sign; a tie goes away from zero.
template <class E>
inline constexpr int kPieces = std::is_same_v<E, F32>   ? 3
                               : std::is_same_v<E, F16> ? 2
                                                        : 1;
template <class E>
inline constexpr bool kRoundPieces = !std::is_same_v<E, F32>;
template <class E>
inline constexpr int64_t kAmxStep = int64_t{2} * kPieces<E> * kAmxTileSize;

// The pieces of each a in the lower halves of the words of a vector, of each b in the upper ones;
// to `to` and so many elements behind it as two tiles have.
template <class E>
HWY_INLINE void store_pieces(E, VF a, VF b, uint16_t* to) {
  const hn::RebindToUnsigned<DF> du;
  const VU high = hn::Set(du, 0xffff0000u);
  const VU half = hn::Set(du, 0x8000u);
#pragma GCC unroll 3
  for (int piece = 0; piece < kPieces<E>; ++piece) {
    VU a_bits = hn::BitCast(du, a);
    VU b_bits = hn::BitCast(du, b);
    if constexpr (kRoundPieces<E>) {
      a_bits = hn::Add(a_bits, half);
      b_bits = hn::Add(b_bits, half);
    }
    b_bits = hn::And(b_bits, high);
    const VU both = hn::Or(hn::ShiftRight<16>(a_bits), b_bits);
    hn::Store(both, du, reinterpret_cast<uint32_t*>(to + piece * 2 * kAmxTileSize));
    if (piece + 1 == kPieces<E>) break;
    a = hn::Sub(a, hn::BitCast(kF, hn::And(a_bits, high)));
    b = hn::Sub(b, hn::BitCast(kF, b_bits));
  }
}

// Row `row` of a left tile, from 32 floats.
template <class E>
HWY_INLINE void pack_left(E e, const float* from, int row, uint16_t* tile) {
#pragma GCC unroll 4
  for (int c = 0; c < kAmxTile; c += kLanes) {
    store_pieces(e, hn::Load(kF, from + c), hn::Load(kF, from + kAmxTile + c),
                 tile + row * kAmxStrip + 2 * c);
  }
}

// Half a strip of query rows, `stride` floats apart, to the tiles of all steps.
template <class E>
HWY_INLINE void pack_query_half(E e, const float* rows, int64_t stride, int depth, uint16_t* tile) {
  for (int k = 0; k < depth; k += kAmxStrip, tile += kAmxStep<E>) {
    for (int r = 0; r < kAmxTile; ++r) pack_left(e, rows + r * stride + k, r, tile);
  }
}

// 16 keys in the type E of their rows, to the tiles of all steps, cut like numbers of type P.
// `transpose` holds kAmxStrip * kAmxTile floats.
template <class P, class E>
HWY_INLINE void pack_key_half(P p, E e, const typename E::Raw* const* row, int channels,
                              float* transpose, uint16_t* tile) {
  for (int k = 0; k < channels; k += kAmxStrip, tile += kAmxStep<P>) {
    const int count = std::min(kAmxStrip, channels - k);
    for (int c = 0; c < count; c += kGroup) {
      for (int key = 0; key < kAmxTile; key += kGroup) {
        transpose_group(e, row + key, k + c, std::min(kGroup, count - c),
                        transpose + c * kAmxTile + key, kAmxTile);
      }
    }
    for (int c = count * kAmxTile; c < kAmxStrip * kAmxTile; c += kLanes) {
      hn::Store(hn::Zero(kF), kF, transpose + c);
    }
    for (int i = 0; i < kAmxTile; ++i) {
#pragma GCC unroll 4
      for (int key = 0; key < kAmxTile; key += kLanes) {
        const float* low = transpose + i * kAmxTile + key;
        store_pieces(p, hn::Load(kF, low), hn::Load(kF, low + kAmxTile * kAmxTile),
                     tile + i * kAmxStrip + 2 * key);
      }
    }
  }
}

// A vector of a row's channels from c on, zeros from `channels`.
template <class E>
HWY_INLINE VF load_channels(E e, const typename E::Raw* row, int c, int channels) {
  if (c + kLanes <= channels) return load(e, kF, row + c);
  return c < channels ? load_upto(e, kF, row + c, channels - c) : hn::Zero(kF);
}

// A group of 32 value rows, to the tiles of the group; those of the next 32 channels lie `stride`
// elements further.
template <class E>
HWY_INLINE void pack_value_group(E e, const typename E::Raw* const* row, int channels,
                                 int64_t stride, uint16_t* tile) {
  for (int i = 0; i < kAmxTile; ++i) {
    uint16_t* to = tile + i * kAmxStrip;
    for (int c = 0; c < channels; c += kAmxStrip, to += stride) {
#pragma GCC unroll 8
      for (int at = 0; at < kAmxStrip; at += kLanes) {
        store_pieces(e, load_channels(e, row[i], c + at, channels),
                     load_channels(e, row[i + kAmxTile], c + at, channels),
                     to + at / kAmxTile * kAmxTileSize + 2 * (at % kAmxTile));
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
