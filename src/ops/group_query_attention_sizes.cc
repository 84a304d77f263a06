// The sizes that the arguments of GroupQueryAttention agree on.
#include <limits>

#include "core/error.h"
#include "ops/group_query_attention.h"
#include "ops/shape_check.h"

namespace attn::gqa {
namespace {

// The size of an axis of a bound tensor, kAnyDim where there is none.
int64_t size_of_axis(const Tensor& tensor, int axis) {
  return tensor.present && axis < tensor.rank ? tensor.shape[static_cast<size_t>(axis)] : kAnyDim;
}

int64_t head_size_of(const char* name, const Tensor& tensor, int64_t heads, const char* words) {
  const int64_t channels = size_of_axis(tensor, 2);
  if (channels == kAnyDim) return kAnyDim;
  if (channels % heads != 0) {
    fail_argument(name, ": expected a last dimension that is a multiple of ", heads, " (", words,
                  "); got ", shape_text(tensor));
  }
  return channels / heads;
}

int64_t query_head_size(const Settings& settings, const Arguments& arguments, bool packed) {
  const int64_t heads =
      settings.q_heads + (packed ? 2 * static_cast<int64_t>(settings.kv_heads) : 0);
  return head_size_of(
      kInputNames[kQuery], arguments.in[kQuery], heads,
      packed ? "num_heads + 2 * kv_num_heads, as key and value are not bound" : "num_heads");
}

// A query may leave sizes open: the first other argument that has them decides, and the checks
// that follow compare all.
void learn_open_sizes(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  const auto& in = arguments.in;
  const auto& out = arguments.out;
  for (const Input input : {kKey, kValue, kPastKey, kPastValue, kSeqlensK}) {
    sizes.batch = known_of(sizes.batch, size_of_axis(in[input], 0));
  }
  for (int output = 0; output < kOutputCount; ++output) {
    sizes.batch = known_of(sizes.batch, size_of_axis(out[static_cast<size_t>(output)], 0));
  }
  if (settings.rotary) {
    sizes.batch = known_of(sizes.batch, size_of_axis(in[kPositionIds], 0));
    sizes.query_rows = known_of(sizes.query_rows, size_of_axis(in[kPositionIds], 1));
  }
  sizes.query_rows = known_of(sizes.query_rows, size_of_axis(out[kOutput], 1));
  sizes.query_rows = known_of(sizes.query_rows, size_of_axis(out[kOutputQk], 2));
  sizes.query_rows = known_of(sizes.query_rows, size_of_axis(out[kLogSumExp], 2));

  for (const Input input : {kKey, kValue}) {
    sizes.head_size = known_of(sizes.head_size, head_size_of(kInputNames[input], in[input],
                                                             settings.kv_heads, "kv_num_heads"));
  }
  for (const Input input : {kPastKey, kPastValue}) {
    sizes.head_size = known_of(sizes.head_size, size_of_axis(in[input], 3));
  }
  for (const Input input : {kQNormWeight, kKNormWeight}) {
    sizes.head_size = known_of(sizes.head_size, size_of_axis(in[input], 0));
  }
  for (const Output output : {kPresentKey, kPresentValue}) {
    sizes.head_size = known_of(sizes.head_size, size_of_axis(out[output], 3));
  }
  sizes.head_size = known_of(sizes.head_size, head_size_of(kOutputNames[kOutput], out[kOutput],
                                                           settings.q_heads, "num_heads"));
}

void check_head_size(const Settings& settings, const Arguments& arguments, const Sizes& sizes) {
  if (sizes.head_size == 0) {
    fail_argument("query: expected a head size of at least 1; got ",
                  shape_text(arguments.in[kQuery]), ", which with num_heads ", settings.q_heads,
                  " is a head size of 0");
  }
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (sizes.head_size > kLargest) {
    fail_unsupported("query: head sizes beyond ", kLargest, " are not built; got ",
                     sizes.head_size);
  }
}

}  // namespace

Sizes read_sizes(const Settings& settings, const Arguments& arguments) {
  Sizes sizes;
  const auto& in = arguments.in;
  sizes.packed = !in[kKey].present;
  sizes.has_past = in[kPastKey].present;
  sizes.q_norm = in[kQNormWeight].present;
  check_shape(kInputNames[kQuery], in[kQuery],
              sizes.packed ? "(B, S, (Hq + 2*Hkv)*D)" : "(B, S, Hq*D)",
              {kAnyDim, kAnyDim, kAnyDim});
  sizes.batch = in[kQuery].shape[0];
  sizes.query_rows = in[kQuery].shape[1];
  sizes.head_size = query_head_size(settings, arguments, sizes.packed);
  if (sizes.batch == kAnyDim || sizes.query_rows == kAnyDim || sizes.head_size == kAnyDim) {
    learn_open_sizes(settings, arguments, sizes);
  }
  check_head_size(settings, arguments, sizes);
  sizes.new_rows = sizes.packed ? sizes.query_rows
                                : known_of(size_of_axis(in[kKey], 1), size_of_axis(in[kValue], 1));
  return sizes;
}

}  // namespace attn::gqa
