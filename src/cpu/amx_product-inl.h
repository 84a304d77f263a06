// The one product of "amx-prefill": 32 x 32 sums over steps of 32 elements, for one target.
//
// Operands come in pieces, the large ones first: x = x0 + x1 + x2, each about 2^8 times smaller
// than the one before. Products of pieces whose indices add up to the number of pieces or more are
// left out: what they hold is at the last place of a product. Of a step the small products come
// first.
//
// Sums stay in tiles 0 to 3, so that operands have two tiles each: rows in 4 and 5, columns in 6
// and 7. Every tile is loaded anew as soon as the last product that reads it was given to the unit,
// while others still run: loading takes as long as several products.
#if defined(ATTN_AMX_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_PRODUCT_INL_H_
#undef ATTN_AMX_PRODUCT_INL_H_
#else
#define ATTN_AMX_PRODUCT_INL_H_
#endif

#include <cstdint>

#include "cpu/attention_amx.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Which operands the next four products have others of.
enum class Next : uint8_t { kNothing, kLeft, kRight, kBoth };

// Adds the four products of what is loaded and loads what comes next.
template <Next kNext, class Tiles>
HWY_INLINE void add_four(Tiles& tiles, const uint16_t* left, const uint16_t* right) {
  tiles.template dot<0, 4, 6>();
  if constexpr (kNext == Next::kRight) {
    tiles.template dot<2, 5, 6>();
    tiles.template load<6>(right);
    tiles.template dot<1, 4, 7>();
    tiles.template dot<3, 5, 7>();
    tiles.template load<7>(right + kAmxTileSize);
  } else {
    tiles.template dot<1, 4, 7>();
    if constexpr (kNext != Next::kNothing) tiles.template load<4>(left);
    tiles.template dot<2, 5, 6>();
    if constexpr (kNext == Next::kBoth) tiles.template load<6>(right);
    tiles.template dot<3, 5, 7>();
    if constexpr (kNext != Next::kNothing) tiles.template load<5>(left + kAmxTileSize);
    if constexpr (kNext == Next::kBoth) tiles.template load<7>(right + kAmxTileSize);
  }
}

// One step, whose first operands are loaded; `after` says what to do with the last four products.
template <int kPieces, bool kWhole, class Tiles, class After>
HWY_INLINE void add_step(Tiles& tiles, const uint16_t* left, const uint16_t* right,
                         const After& after) {
  constexpr int64_t kPiece = int64_t{2} * kAmxTileSize;
  if constexpr (kPieces == 3) {  // pieces (2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)
    add_four<Next::kLeft>(tiles, left + kPiece, right);
    add_four<Next::kRight>(tiles, left, right + kPiece);
    add_four<Next::kLeft>(tiles, left, right);
    add_four<Next::kRight>(tiles, left, right + 2 * kPiece);
    add_four<Next::kRight>(tiles, left, right);
  } else if constexpr (kPieces == 2 && kWhole) {  // (1, 1), (1, 0), (0, 0), (0, 1)
    add_four<Next::kRight>(tiles, left, right);
    add_four<Next::kLeft>(tiles, left, right);
    add_four<Next::kRight>(tiles, left, right + kPiece);
  } else if constexpr (kPieces == 2) {  // (1, 0), (0, 0), (0, 1)
    add_four<Next::kLeft>(tiles, left, right);
    add_four<Next::kRight>(tiles, left, right + kPiece);
  }
  after();
}

// out[r][c] = the sum over `steps`, at least one, of left[r] * right[c], for 32 rows and 32
// columns. With kWhole two pieces leave nothing out.
template <int kPieces, bool kWhole, class Tiles>
HWY_INLINE void multiply(Tiles& tiles, const uint16_t* left, const uint16_t* right, int64_t steps,
                         float* out, int64_t out_stride) {
  constexpr int64_t kPiece = int64_t{2} * kAmxTileSize;
  constexpr int64_t kStep = kPieces * kPiece;
  // The pieces that a step begins with.
  constexpr int64_t kFirstLeft = (kPieces - 1) * kPiece;
  constexpr int64_t kFirstRight = kPieces == 2 && kWhole ? kPiece : 0;
  tiles.template load<4>(left + kFirstLeft);
  tiles.template load<6>(right + kFirstRight);
  tiles.template load<7>(right + kFirstRight + kAmxTileSize);
  tiles.template load<5>(left + kFirstLeft + kAmxTileSize);
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
  for (int64_t s = 1; s < steps; ++s, left += kStep, right += kStep) {
    add_step<kPieces, kWhole>(tiles, left, right, [&]() HWY_ATTR {
      add_four<Next::kBoth>(tiles, left + kStep + kFirstLeft, right + kStep + kFirstRight);
    });
  }
  add_step<kPieces, kWhole>(tiles, left, right,
                            [&]() HWY_ATTR { add_four<Next::kNothing>(tiles, left, right); });
  tiles.template store<0>(out, out_stride);
  tiles.template store<1>(out + kAmxTile, out_stride);
  tiles.template store<2>(out + kAmxTile * out_stride, out_stride);
  tiles.template store<3>(out + kAmxTile * out_stride + kAmxTile, out_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
