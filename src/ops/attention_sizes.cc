// The sizes that the arguments of Attention agree on, and the form of its caches.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/attention.h"
#include "ops/shape_check.h"

namespace attn::attention {
namespace {

// A size of a bound tensor, kAnyDim where there is none.
int64_t batch_of(const Tensor& tensor) { return tensor.present ? tensor.shape[0] : kAnyDim; }

int64_t known_rows_of(const Tensor& tensor) { return tensor.present ? rows_of(tensor) : kAnyDim; }

// Channels of a head; kAnyDim where the tensor, its last size or the head count is not known.
int64_t channels_of(const char* name, const Tensor& tensor, int64_t heads, const char* words) {
  if (!tensor.present) return kAnyDim;
  if (tensor.rank == 4) return tensor.shape[3];
  const int64_t channels = tensor.shape[2];
  if (channels == kAnyDim || heads == kAnyDim) return kAnyDim;
  if (channels % heads != 0) {
    fail_argument(name, ": expected a last dimension that is a multiple of ", heads, " (", words,
                  "); got ", shape_text(tensor));
  }
  return channels / heads;
}

// The head count that a 4-D tensor has, held against the attribute (0: not given).
int64_t heads_of(const Settings& settings, const char* name, const Tensor& tensor,
                 int32_t attribute, const char* attribute_name) {
  const int64_t heads = tensor.shape[1];
  if (settings.rules >= 25 && attribute != 0) {
    fail_argument("attribute '", attribute_name, "': expected none in version 25, as ", name,
                  " is 4-D; got ", attribute);
  }
  if (heads == 0 || heads > std::numeric_limits<int32_t>::max()) {
    fail_argument(name, ": expected 1 to ", std::numeric_limits<int32_t>::max(), " heads; got ",
                  shape_text(tensor));
  }
  if (attribute != 0 && heads != kAnyDim && heads != attribute) {
    fail_argument(name, ": expected ", attribute, " heads, as the attribute ", attribute_name,
                  " says; got ", shape_text(tensor));
  }
  return heads == kAnyDim && attribute != 0 ? attribute : heads;
}

void read_heads(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  const Tensor& query = arguments.in[kQ];
  if (query.rank == 4) {
    sizes.q_heads = heads_of(settings, kInputNames[kQ], query, settings.q_heads, "q_num_heads");
  } else if (settings.q_heads == 0) {
    fail_argument("attribute 'q_num_heads': it is required, as Q is 3-D: ", shape_text(query));
  } else {
    sizes.q_heads = settings.q_heads;
  }

  sizes.kv_heads = kAnyDim;
  bool known = false;  // some 4-D input tells
  for (const Input input : {kK, kV}) {
    const Tensor& tensor = arguments.in[input];
    if (tensor.rank != 4) continue;
    const int64_t heads =
        heads_of(settings, kInputNames[input], tensor, settings.kv_heads, "kv_num_heads");
    if (!fits(heads, sizes.kv_heads)) {
      fail_argument("V: expected ", sizes.kv_heads, " heads, as K has; got ", shape_text(tensor));
    }
    sizes.kv_heads = known_of(sizes.kv_heads, heads);
    known = true;
  }
  if (!known && settings.kv_heads == 0) {
    fail_argument("attribute 'kv_num_heads': it is required, as K and V are 3-D: ",
                  shape_text(arguments.in[kK]), " and ", shape_text(arguments.in[kV]));
  }
  if (!known) sizes.kv_heads = settings.kv_heads;

  if (sizes.q_heads != kAnyDim && sizes.kv_heads != kAnyDim &&
      sizes.q_heads % sizes.kv_heads != 0) {
    fail_argument("Q: expected a number of heads that is a multiple of the ", sizes.kv_heads,
                  " heads of K and V; got ", sizes.q_heads);
  }
}

void check_head_size(const char* name, const Tensor& tensor, int64_t size) {
  if (size == 0) {
    fail_argument(name, ": expected a head size of at least 1; got ", shape_text(tensor));
  }
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (size > kLargest) {
    fail_unsupported(name, ": head sizes beyond ", kLargest, " are not built; got ", size);
  }
}

void read_head_sizes(const Arguments& arguments, Sizes& sizes) {
  const auto& in = arguments.in;
  const auto& out = arguments.out;
  const auto kv_channels = [&](Input input) {
    return channels_of(kInputNames[input], in[input], sizes.kv_heads, "the key and value heads");
  };
  sizes.head_size = channels_of(kInputNames[kQ], in[kQ], sizes.q_heads, "q_num_heads");
  sizes.head_size = known_of(sizes.head_size, kv_channels(kK));
  sizes.head_size = known_of(sizes.head_size, kv_channels(kPastKey));
  if (out[kPresentKey].present && out[kPresentKey].rank == 4) {
    sizes.head_size = known_of(sizes.head_size, out[kPresentKey].shape[3]);
  }
  sizes.v_head_size = kv_channels(kV);
  sizes.v_head_size = known_of(sizes.v_head_size, kv_channels(kPastValue));
  if (out[kPresentValue].present && out[kPresentValue].rank == 4) {
    sizes.v_head_size = known_of(sizes.v_head_size, out[kPresentValue].shape[3]);
  }
  if (out[kY].present && out[kY].rank == in[kQ].rank) {
    sizes.v_head_size = known_of(
        sizes.v_head_size, channels_of(kOutputNames[kY], out[kY], sizes.q_heads, "q_num_heads"));
  }
  check_head_size(kInputNames[kQ], in[kQ], sizes.head_size);
  check_head_size(kInputNames[kV], in[kV], sizes.v_head_size);
}

// ---- caches -------------------------------------------------------------------------------------

struct Cache {
  Input past;
  Output present;
};
constexpr Cache kKeys{kPastKey, kPresentKey}, kValues{kPastValue, kPresentValue};

// The rows of a cache in this call: kAnyDim where a query leaves them open.
struct Rows {
  int64_t past = 0;
  int64_t present = kAnyDim;
  bool bound = false;  // present is
};

Rows cache_rows(const Arguments& arguments, const Sizes& sizes, const Cache& cache) {
  Rows rows;
  if (sizes.has_past) rows.past = rows_of(arguments.in[cache.past]);
  rows.bound = arguments.out[cache.present].present;
  if (rows.bound) rows.present = arguments.out[cache.present].shape[2];
  return rows;
}

CacheForm form_of(const Arguments& arguments, const Sizes& sizes, const Cache& cache,
                  const Rows& rows) {
  if (rows.present == kAnyDim || rows.past == kAnyDim || sizes.new_rows == kAnyDim) {
    return CacheForm::kDense;
  }
  const int64_t full = rows.past + sizes.new_rows;
  if (rows.present == full) return CacheForm::kDense;
  if (rows.present > full) return CacheForm::kCapacity;
  if (sizes.has_past && rows.past >= rows.present) return CacheForm::kFrozen;
  const Tensor& present = arguments.out[cache.present];
  if (!sizes.has_past) {
    fail_argument(kOutputNames[cache.present], ": expected at least ", sizes.new_rows,
                  " rows, as many as there are new ones; got ", shape_text(present));
  }
  fail_argument(kOutputNames[cache.present], ": expected ", full, " rows (", rows.past, " of ",
                kInputNames[cache.past], " and ", sizes.new_rows,
                " new ones), more (a capacity) or at most ", rows.past,
                " (a cache of fixed size); got ", shape_text(present));
}

const char* name_of(CacheForm form) {
  if (form == CacheForm::kDense) return "past and new rows";
  return form == CacheForm::kCapacity ? "a capacity" : "a cache of fixed size";
}

void check_derived(const Settings& settings, const Arguments& arguments, const Sizes& sizes) {
  const char* what = sizes.form == CacheForm::kFrozen
                         ? "present_key: no longer than past_key, so the mask says how many keys "
                           "there are"
                         : "attribute 'length_from_mask': with 1 the mask says how many keys there "
                           "are";
  if (!arguments.in[kMask].present) {
    fail_argument(what, ", which needs attn_mask; got none");
  }
  for (const Cache& cache : {kKeys, kValues}) {
    if (arguments.aliases(cache.past, cache.present)) continue;
    fail_argument(what, ", which needs ", kOutputNames[cache.present], " in the memory of ",
                  kInputNames[cache.past], "; got ",
                  arguments.out[cache.present].present ? "memory of its own" : "none");
  }
  (void)settings;
}

}  // namespace

Sizes read_sizes(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  const auto& out = arguments.out;
  Sizes sizes;
  sizes.has_past = in[kPastKey].present;
  sizes.batch = kAnyDim;
  for (const Input input : {kQ, kK, kV, kPastKey, kPastValue, kNonpad}) {
    sizes.batch = known_of(sizes.batch, batch_of(in[input]));
  }
  for (const Tensor& output : out) sizes.batch = known_of(sizes.batch, batch_of(output));
  read_heads(settings, arguments, sizes);
  sizes.query_rows = rows_of(in[kQ]);
  if (out[kY].present && out[kY].rank == in[kQ].rank) {
    sizes.query_rows = known_of(sizes.query_rows, rows_of(out[kY]));
  }
  sizes.new_rows = known_of(rows_of(in[kK]), rows_of(in[kV]));
  read_head_sizes(arguments, sizes);
  if (sizes.has_past) {
    sizes.past_rows = known_of(known_rows_of(in[kPastKey]), known_rows_of(in[kPastValue]));
  }
  return sizes;
}

void read_form(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  Rows keys = cache_rows(arguments, sizes, kKeys);
  Rows values = cache_rows(arguments, sizes, kValues);
  // Both pasts have the same rows unless the cache is frozen, which takes both to be known.
  if (keys.past == kAnyDim) keys.past = values.past;
  if (values.past == kAnyDim) values.past = keys.past;
  sizes.form = keys.bound ? form_of(arguments, sizes, kKeys, keys) : CacheForm::kDense;
  if (values.bound) {
    const CacheForm form = form_of(arguments, sizes, kValues, values);
    if (keys.bound && form != sizes.form && keys.present != kAnyDim && values.present != kAnyDim &&
        sizes.new_rows != kAnyDim) {
      fail_argument("present_value: expected the form that present_key has, ", name_of(sizes.form),
                    "; got ", name_of(form));
    }
    if (!keys.bound) sizes.form = form;
  }
  const bool frozen = sizes.form == CacheForm::kFrozen;
  if (!frozen && !fits(keys.past, values.past)) {
    fail_argument("past_value: expected ", keys.past, " rows, as past_key has; got ",
                  shape_text(arguments.in[kPastValue]));
  }
  sizes.derived = frozen || (sizes.form == CacheForm::kCapacity && settings.length_from_mask);
  if (sizes.derived) {
    check_derived(settings, arguments, sizes);
    sizes.score_columns = keys.present;
    sizes.most_keys = sizes.planned_keys = std::min(keys.present, values.present);
    return;
  }
  const bool open = sizes.past_rows == kAnyDim || sizes.new_rows == kAnyDim;
  sizes.score_columns = open ? kAnyDim : sizes.past_rows + sizes.new_rows;
  sizes.most_keys = sizes.planned_keys = sizes.score_columns;
  if (sizes.form == CacheForm::kCapacity) {
    sizes.planned_keys = std::max(keys.present, values.present);
  }
}

}  // namespace attn::attention
