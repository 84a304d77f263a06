// exp and tanh of float vectors, for one target.
#if defined(ATTN_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_MATH_INL_H_
#undef ATTN_SIMD_MATH_INL_H_
#else
#define ATTN_SIMD_MATH_INL_H_
#endif

#include "cpu/simd_load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// The larger (smaller) of x and a limit; NaN stays NaN.
HWY_INLINE VF at_least(float limit, VF x) {
  const VF bound = hn::Set(kF, limit);
#if HWY_TARGET == HWY_NEON
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);  // its maximum prefers numbers
#else
  return hn::Max(bound, x);  // the second operand, if one is NaN
#endif
}
HWY_INLINE VF at_most(float limit, VF x) {
  const VF bound = hn::Set(kF, limit);
#if HWY_TARGET == HWY_NEON
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#else
  return hn::Min(bound, x);
#endif
}

// e^x for x <= 88, within 1.5 units in the last place. Exactly 1 at 0; 0 below -87.7, where floats
// are subnormal, -infinity included; NaN stays NaN.
//
// x = n ln 2 + r. The first part of ln 2 has 9 bits, so that n times it and the difference are
// exact with and without a fused multiply-add: the error does not grow with |x|.
HWY_INLINE VF exp_float(VF x) {
  const hn::RebindToUnsigned<DF> du;
  // Adding `shift` rounds to an integer and leaves that integer plus 127 in the low bits.
  const auto shift = hn::Set(kF, 12582912.0f + 127.0f);
  const auto bounded = at_least(-88.0f, x);
  const auto z = hn::MulAdd(bounded, hn::Set(kF, 1.44269502f), shift);
  const auto n = hn::Sub(z, shift);
  auto r = hn::NegMulAdd(n, hn::Set(kF, 0.693359375f), bounded);
  r = hn::NegMulAdd(n, hn::Set(kF, -2.12194442e-4f), r);  // in [-0.347, 0.347]
  // Minimax for e^r with the value and the slope 1 at 0; error 3.6e-9.
  auto p = hn::MulAdd(r, hn::Set(kF, 0.00138145406f), hn::Set(kF, 0.00836874545f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.041668389f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.166665211f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.49999994f));
  p = hn::MulAdd(p, r, hn::Set(kF, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(kF, 1.0f));
  const auto power = hn::BitCast(kF, hn::ShiftLeft<23>(hn::BitCast(du, z)));
  return hn::Mul(p, power);
}

// e^x for x <= 88 with an error of 1.7e-7 + 1.2e-7 |x|, for results that are rounded to 16 bits.
// Exactly 1 at 0; 0 below -87.7, -infinity included; NaN stays NaN.
HWY_INLINE VF exp_short(VF x) {
  const hn::RebindToUnsigned<DF> du;
  const auto log2_e = hn::Set(kF, 1.44269502f);
  const auto shift = hn::Set(kF, 12582912.0f + 127.0f);  // as in exp_float
  const auto bounded = at_least(-88.0f, x);
  const auto z = hn::MulAdd(bounded, log2_e, shift);
  const auto f = hn::MulSub(bounded, log2_e, hn::Sub(z, shift));  // in [-0.5, 0.5]
  // Minimax for 2^f with the value 1 at 0; error 9.2e-8.
  auto p = hn::MulAdd(f, hn::Set(kF, 0.00132647273f), hn::Set(kF, 0.00967151299f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.0555073358f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.240222424f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.693147004f));
  p = hn::MulAdd(p, f, hn::Set(kF, 1.0f));
  const auto power = hn::BitCast(kF, hn::ShiftLeft<23>(hn::BitCast(du, z)));
  return hn::Mul(p, power);
}

// tanh, relative error below 3e-7; NaN stays NaN.
HWY_INLINE VF tanh_float(VF x) {
  const auto magnitude = hn::Abs(x);
  // Small arguments: odd polynomial, for |x| < 0.625.
  const auto x2 = hn::Mul(x, x);
  auto p = hn::MulAdd(x2, hn::Set(kF, -5.70498872745e-3f), hn::Set(kF, 2.06390887954e-2f));
  p = hn::MulAdd(p, x2, hn::Set(kF, -5.37397155531e-2f));
  p = hn::MulAdd(p, x2, hn::Set(kF, 1.33314422036e-1f));
  p = hn::MulAdd(p, x2, hn::Set(kF, -3.33332819422e-1f));
  const auto small = hn::MulAdd(hn::Mul(p, x2), x, x);
  // Large ones: 1 - 2 / (e^2|x| + 1); 10 is as good as infinity.
  const auto two = hn::Set(kF, 2.0f);
  const auto e = exp_float(hn::Mul(two, at_most(10.0f, magnitude)));
  const auto one = hn::Set(kF, 1.0f);
  const auto large = hn::CopySign(hn::Sub(one, hn::Div(two, hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(kF, 0.625f)), small, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
