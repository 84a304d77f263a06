// Rules of type and shape of RotaryEmbedding, and from checked arguments to the problem. Runs on
// every execute: no allocation unless it fails.
#include <limits>

#include "core/error.h"
#include "ops/rotary_embedding.h"
#include "ops/shape_check.h"
#include "ops/views.h"

namespace attn::rotary {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

void check_types(const Arguments& arguments) {
  const auto& in = arguments.in;
  const DType type = in[kX].type;
  if (type != kFloat32 && type != kFloat16 && type != kBfloat16) {
    fail_type(kInputNames[kX], in[kX], "float32, float16 or bfloat16");
  }
  for (const Input table : {kCosCache, kSinCache}) {
    check_type_of(kInputNames[table], in[table], type, kInputNames[kX]);
  }
  if (in[kPositionIds].present && in[kPositionIds].type != kInt64) {
    fail_type(kInputNames[kPositionIds], in[kPositionIds], "int64");
  }
}

// A head size or count that is known lies in [1, 2^31).
void check_count(const char* what, int64_t count, const Tensor& x) {
  if (count == 0) fail_argument("X: expected ", what, " of at least 1; got ", tensor_text(x));
  if (count > kLargest) {
    fail_unsupported("X: ", what, " beyond ", kLargest, " is not built; got ", tensor_text(x));
  }
}

// B, H, S and D of X in either layout.
void read_x(const Settings& settings, const Tensor& x, Sizes& sizes) {
  if (x.rank == 4) {
    sizes.heads_apart = true;
    sizes.heads = x.shape[1];
    sizes.rows = x.shape[2];
    sizes.head_size = x.shape[3];
    if (settings.heads != 0 && !fits(sizes.heads, settings.heads)) {
      fail_argument("X: expected ", settings.heads, " heads, as num_heads says; got ",
                    tensor_text(x));
    }
    if (settings.heads != 0) sizes.heads = settings.heads;
  } else if (x.rank == 3) {
    if (settings.heads == 0) {
      fail_argument("X: expected rank 4, or rank 3 with the attribute num_heads; got ",
                    tensor_text(x), " without num_heads");
    }
    sizes.heads = settings.heads;
    sizes.rows = x.shape[1];
    sizes.head_size = kAnyDim;
    if (x.shape[2] != kAnyDim) {
      if (x.shape[2] % settings.heads != 0) {
        fail_argument("X: expected a last dimension that is a multiple of num_heads ",
                      settings.heads, "; got ", tensor_text(x));
      }
      sizes.head_size = x.shape[2] / settings.heads;
    }
  } else {
    fail_argument("X: expected shape (B, H, S, D) or (B, S, H*D); got ", tensor_text(x));
  }
  sizes.batch = x.shape[0];
  check_count("a head count", sizes.heads, x);
  check_count("a head size", sizes.head_size, x);
  if (sizes.head_size != kAnyDim && sizes.head_size % 2 != 0) {
    fail_argument("X: expected an even head size; got ", sizes.head_size, ", of ", tensor_text(x));
  }
}

void read_width(const Settings& settings, Sizes& sizes) {
  sizes.width = settings.width != 0 ? settings.width : sizes.head_size;
  if (sizes.head_size != kAnyDim && sizes.width > sizes.head_size) {
    fail_argument("X: expected a head size of at least rotary_embedding_dim ", sizes.width,
                  "; got ", sizes.head_size);
  }
}

// What a query leaves open is taken from the first other argument that has it.
void learn_open_sizes(const Arguments& arguments, Sizes& sizes) {
  const Tensor& cos = arguments.in[kCosCache];
  const Tensor& positions = arguments.in[kPositionIds];
  if (positions.present && positions.rank == 2) {
    sizes.batch = known_of(sizes.batch, positions.shape[0]);
    sizes.rows = known_of(sizes.rows, positions.shape[1]);
  }
  if (!positions.present && cos.rank == 3) {
    sizes.batch = known_of(sizes.batch, cos.shape[0]);
    sizes.rows = known_of(sizes.rows, cos.shape[1]);
  }
}

void check_tables(const Arguments& arguments, Sizes& sizes) {
  const auto& in = arguments.in;
  const Tensor& cos = in[kCosCache];
  const int64_t half = sizes.width == kAnyDim ? kAnyDim : sizes.width / 2;
  if (in[kPositionIds].present) {
    if (cos.rank != 2) {
      fail_argument("cos_cache: expected shape (positions, width/2), as position_ids are bound; ",
                    "got ", tensor_text(cos));
    }
    check_shape(kInputNames[kCosCache], cos, "(positions, width/2)", {kAnyDim, half});
    sizes.table_rows = cos.shape[0];
    check_shape(kInputNames[kSinCache], in[kSinCache], "(positions, width/2), that of cos_cache",
                {sizes.table_rows, cos.shape[1]});
    check_shape(kInputNames[kPositionIds], in[kPositionIds], "(B, S)", {sizes.batch, sizes.rows});
  } else {
    if (cos.rank != 3) {
      fail_argument("cos_cache: expected shape (B, S, width/2), as there are no position_ids; got ",
                    tensor_text(cos));
    }
    for (const Input table : {kCosCache, kSinCache}) {
      check_shape(kInputNames[table], in[table], "(B, S, width/2)",
                  {sizes.batch, sizes.rows, half});
    }
    sizes.table_rows = sizes.rows;
  }
}

View4 view_of(const Sizes& sizes, const Tensor& tensor, const char* name) {
  return sizes.heads_apart ? cache_view(tensor) : heads_view(tensor, name, sizes.head_size, 0);
}

void set_tables(const Sizes& sizes, const Arguments& arguments, RotaryProblem& problem) {
  const Tensor& cos = arguments.in[kCosCache];
  const Tensor& sin = arguments.in[kSinCache];
  const Tensor& positions = arguments.in[kPositionIds];
  const size_t row = sizes.positions ? 0 : 1;
  RowTransform& transform = problem.transform;
  transform.cos = cos.data;
  transform.sin = sin.data;
  transform.cos_row = cos.strides[row];
  transform.sin_row = sin.strides[row];
  transform.cos_col = inner_stride(cos.strides[row + 1], cos.shape[row + 1]);
  transform.sin_col = inner_stride(sin.strides[row + 1], sin.shape[row + 1]);
  transform.table_rows = sizes.table_rows;
  if (sizes.positions) {
    transform.positions = static_cast<const int64_t*>(positions.data);
    transform.position_batch = positions.strides[0];
    transform.position_row = positions.strides[1];
  } else {
    problem.cos_batch = cos.strides[0];
    problem.sin_batch = sin.strides[0];
  }
}

}  // namespace

Sizes check_inputs(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  check_present(kInputNames[kX], in[kX], "(B, H, S, D) or (B, S, H*D)");
  for (const Input table : {kCosCache, kSinCache}) {
    check_present(kInputNames[table], in[table], "(positions, width/2) or (B, S, width/2)");
  }
  check_types(arguments);
  Sizes sizes;
  sizes.positions = in[kPositionIds].present;
  read_x(settings, in[kX], sizes);
  read_width(settings, sizes);
  learn_open_sizes(arguments, sizes);
  check_tables(arguments, sizes);
  return sizes;
}

void check_output(const Arguments& arguments) {
  const Tensor& x = arguments.in[kX];
  const Tensor& y = arguments.out[kY];
  if (!y.present) return;
  check_type_of(kOutputName, y, x.type, kInputNames[kX]);
  bool same = y.rank == x.rank;
  for (int32_t i = 0; same && i < x.rank; ++i) {
    same = fits(y.shape[static_cast<size_t>(i)], x.shape[static_cast<size_t>(i)]);
  }
  if (!same) {
    fail_argument("Y: expected the shape of X, ", shape_text(x), "; got ", shape_text(y));
  }
  if (arguments.aliases(kX, kY) && !same_strides(x, y)) {
    fail_argument("Y: expected the strides of X, ", strides_text(x), ", as both share memory; got ",
                  strides_text(y));
  }
}

void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
           Lowering& out) {
  const Tensor& x = arguments.in[kX];
  const Tensor& y = arguments.out[kY];
  out.batch = sizes.batch;
  out.lengths.batch = sizes.batch;
  out.lengths.query_rows = sizes.rows;
  RotaryProblem& problem = out.rotary.emplace();
  problem.batch = sizes.batch;
  problem.rows = sizes.rows;
  problem.input = view_of(sizes, x, kInputNames[kX]);
  problem.output = view_of(sizes, y.present ? y : x, kOutputName);
  set_tables(sizes, arguments, problem);
  RotarySpec& spec = problem.spec;
  spec.type = x.type;
  spec.heads = static_cast<int32_t>(sizes.heads);
  spec.head_size = static_cast<int32_t>(sizes.head_size);
  spec.in_place = arguments.aliases(kX, kY);
  spec.unit_channel = problem.input.channel == 1 && problem.output.channel == 1;
  spec.transform.rotary = true;
  spec.transform.interleaved = settings.interleaved;
  spec.transform.explicit_positions = sizes.positions;
  spec.transform.unit_strides = problem.transform.cos_col == 1 && problem.transform.sin_col == 1;
  spec.transform.table = x.type;
  spec.transform.width = static_cast<int32_t>(sizes.width);
}

}  // namespace attn::rotary
