// What the tile registers do, in vectors, for one target: the same numbers in the documented order.
//
// A dot product of 32 elements is two chains of 16 products, of the even and of the odd ones, which
// begin at zero and are added to each other before they go to the sum. Numbers that are subnormal
// are taken, and left, as zero.
#if defined(ATTN_AMX_TILES_EMULATED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_TILES_EMULATED_INL_H_
#undef ATTN_AMX_TILES_EMULATED_INL_H_
#else
#define ATTN_AMX_TILES_EMULATED_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/attention_amx.h"
#include "cpu/simd_load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Members as in HardwareTiles. A loaded tile is read where it lies when it is used.
class EmulatedTiles {
 public:
  template <int kTile>
  void zero() {
    std::memset(sums_[kTile], 0, sizeof(sums_[kTile]));
  }
  template <int kTile>
  void load(const uint16_t* from) {
    loaded_[kTile] = from;
  }
  template <int kTile>
  void store(float* to, int64_t stride) {
    for (int r = 0; r < kAmxTile; ++r) {
      std::memcpy(to + r * stride, sums_[kTile] + r * kAmxTile, sizeof(float) * kAmxTile);
    }
  }
  template <int kSum, int kLeft, int kRight>
  void dot() {
    add_products(loaded_[kLeft], loaded_[kRight], sums_[kSum]);
  }

 private:
  static HWY_INLINE VF flush(VF x) {
    const VF least = hn::Set(kF, std::numeric_limits<float>::min());
    return hn::IfThenZeroElse(hn::Lt(hn::Abs(x), least), x);
  }

  static HWY_NOINLINE void add_products(const uint16_t* left, const uint16_t* right, float* sums) {
    const hn::RebindToUnsigned<DF> du;
    const VU high = hn::Set(du, 0xffff0000u);
    for (int c = 0; c < kAmxTile; c += kLanes) {
      for (int r = 0; r < kAmxTile; ++r) {
        VF even = hn::Zero(kF);
        VF odd = hn::Zero(kF);
        for (int k = 0; k < kAmxTile; ++k) {
          uint32_t two;
          std::memcpy(&two, left + 32 * r + 2 * k, sizeof two);
          const VU pair = hn::Set(du, two);
          VU column;
          std::memcpy(&column, right + 32 * k + 2 * c, sizeof column);
          const VF left_even = flush(hn::BitCast(kF, hn::ShiftLeft<16>(pair)));
          const VF left_odd = flush(hn::BitCast(kF, hn::And(pair, high)));
          const VF right_even = flush(hn::BitCast(kF, hn::ShiftLeft<16>(column)));
          const VF right_odd = flush(hn::BitCast(kF, hn::And(column, high)));
          even = flush(hn::MulAdd(left_even, right_even, even));
          odd = flush(hn::MulAdd(left_odd, right_odd, odd));
        }
        float* sum = sums + r * kAmxTile + c;
        hn::Store(flush(hn::Add(hn::Load(kF, sum), flush(hn::Add(even, odd)))), kF, sum);
      }
    }
  }

  alignas(64) float sums_[4][kAmxTile * kAmxTile];
  const uint16_t* loaded_[8] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
