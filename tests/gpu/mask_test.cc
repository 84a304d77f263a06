// Masks that show and hide whole tiles of keys, among others that do neither: every engine of
// prefill against the float64 reference, in all forms of masks.
#include <gtest/gtest.h>

#include <limits>

#include "gpu/run.h"
#include "matrix/attention_case.h"

namespace attn::gpu {
namespace {

using matrix::AttentionCase;
using matrix::AttentionOutline;
using test::Type;
using test::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kRows = 150, kTileRows = 64, kTileKeys = 32;

struct Form {
  Type type, mask;
  int64_t size, keys;
  int shape;  // 0: a row of keys a batch row; 1: rows x keys; 2: everything
  bool causal;
};

std::string text_of(const Form& form) {
  return test::name_of(form.type) + ", mask " + test::name_of(form.mask) + ", D " +
         std::to_string(form.size) + ", " + std::to_string(form.keys) + " keys, shape " +
         std::to_string(form.shape) + (form.causal ? ", causal" : "");
}

AttentionOutline outline_of(const Form& form) {
  AttentionOutline o;
  o.seed = 1;
  o.type = form.type;
  o.size = o.v_size = form.size;
  o.batch = 2;
  o.heads = 4;
  o.kv_heads = 2;
  o.rows = kRows;
  o.new_rows = form.keys;
  o.causal = form.causal;
  o.mask = true;
  o.mask_type = form.mask;
  o.mask_shape = {1, 1, kRows, form.keys};
  if (form.shape == 0) o.mask_shape = {2, 1, 1, form.keys};
  if (form.shape == 2) o.mask_shape = {2, 4, kRows, form.keys};
  return o;
}

// Tiles of cells that all show, all hide, or differ.
void fill_mask(const View& view, test::Random& random) {
  const bool boolean = view.type == Type::kBool;
  for (int64_t b = 0; b < view.dim(0); ++b) {
    for (int64_t h = 0; h < view.dim(1); ++h) {
      for (int64_t i0 = 0; i0 < view.dim(2); i0 += kTileRows) {
        for (int64_t j0 = 0; j0 < view.dim(3); j0 += kTileKeys) {
          const int64_t state = random.below(4);  // 0, 1: hidden; 2: shown; 3: both
          for (int64_t i = i0; i < std::min(i0 + kTileRows, view.dim(2)); ++i) {
            for (int64_t j = j0; j < std::min(j0 + kTileKeys, view.dim(3)); ++j) {
              const bool shows = state == 2 || (state == 3 && random.chance(0.5));
              const double bias = state == 3 ? random.normal() : 0;
              view.set({b, h, i, j}, boolean ? (shows ? 1.0 : 0.0) : shows ? bias : -kInfinity);
            }
          }
        }
      }
    }
  }
}

class GpuMask : public GpuTest {};

TEST_F(GpuMask, TilesThatAreHiddenAndShown) {
  Lane lane(Gpu::first());
  std::vector<Form> forms;
  for (const Type type : {Type::kBfloat16, Type::kFloat16, Type::kFloat32}) {
    for (const Type mask : {Type::kBool, type}) {
      for (const int64_t size : {64, 128, 256}) {
        for (const int shape : {0, 1, 2}) {
          forms.push_back({type, mask, size, 320, shape, false});
          if (size == 128) forms.push_back({type, mask, size, 333, shape, true});
        }
      }
    }
  }
  int64_t ran = 0;
  for (const Form& form : forms) {
    test::Random random(static_cast<uint64_t>(forms.size()));
    AttentionCase c = matrix::build_attention_case(outline_of(form), random, false);
    c.wide_range = c.own_workspace = c.through_binding = false;
    fill_mask(c.given[AttentionCase::kMask], random);
    c.renew();
    for (const char* engine : {"wgmma-prefill", "mma-prefill", "float32-prefill"}) {
      DeviceCase device(lane, c, tensors_of(c), engine);
      RunResult result = device.prepare();
      if (result.verdict == Verdict::kPassed) result = device.execute({});
      ASSERT_NE(result.verdict, Verdict::kFailed) << engine << ", " << text_of(form) << ":\n"
                                                  << result.text;
      ran += result.verdict == Verdict::kPassed;
    }
  }
  EXPECT_GE(ran, static_cast<int64_t>(forms.size())) << "some forms found no engine";
}

}  // namespace
}  // namespace attn::gpu
