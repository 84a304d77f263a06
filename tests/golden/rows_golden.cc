// Golden cases of ai.onnx RotaryEmbedding and TensorScatter, whose results are exact.
#include <cmath>
#include <cstring>

#include "golden/golden_case.h"
#include "reference/rotary_embedding.h"
#include "reference/tensor_scatter.h"

namespace attn::golden {
namespace {

// ---- RotaryEmbedding ----------------------------------------------------------------------------

struct RotaryForm {
  const char* name;
  const char* about;
  Type type = Type::kFloat32;
  bool heads_apart = true, interleaved = false, positions = true, in_place = false;
  int64_t width = 0;  // 0: the whole head
  bool strided = false;
};

GoldenCase rotary_case(const RotaryForm& form, uint64_t seed) {
  constexpr int64_t kBatch = 2, kHeads = 3, kRows = 4, kSize = 12, kTableRows = 9;
  test::Random random(seed);
  GoldenCase c(form.name, form.about, "ai.onnx", "RotaryEmbedding", 23);
  if (form.interleaved) c.set_int("interleaved", 1);
  if (form.width > 0) c.set_int("rotary_embedding_dim", form.width);
  if (!form.heads_apart) c.set_int("num_heads", kHeads);
  reference::RotaryEmbedding problem;
  problem.interleaved = form.interleaved;
  problem.rotary_embedding_dim = form.width;
  problem.num_heads = kHeads;

  std::vector<int64_t> shape = {kBatch, kHeads, kRows, kSize};
  if (!form.heads_apart) shape = {kBatch, kRows, kHeads * kSize};
  Place place;
  if (form.strided) {
    place.lead = 16;
    place.layout.gaps.assign(shape.size(), 1);
  }
  const size_t x = c.memory(form.type, shape, place);
  fill(c.view(x), random);
  problem.x = c.input(0, "X", x);
  const int64_t columns = (form.width > 0 ? form.width : kSize) / 2;
  for (const uint32_t slot : {1u, 2u}) {
    const size_t table = form.positions ? c.memory(form.type, {kTableRows, columns})
                                        : c.memory(form.type, {kBatch, kRows, columns});
    const View& view = c.view(table);
    for (int64_t i = 0; i < view.elements(); ++i) {
      const double t = std::fmod(static_cast<double>(i) * 0.3125, 3.0) - 1.5;
      view.set_linear(i, slot == 1 ? (1 - t * t) / (1 + t * t) : 2 * t / (1 + t * t));
    }
    (slot == 1 ? problem.cos : problem.sin) =
        c.input(slot, slot == 1 ? "cos_cache" : "sin_cache", table);
  }
  if (form.positions) {
    const size_t positions = c.memory(Type::kInt64, {kBatch, kRows});
    for (int64_t i = 0; i < kBatch * kRows; ++i) {
      c.view(positions).set_linear(i, static_cast<double>(5 * i % kTableRows));
    }
    problem.position_ids = c.input(3, "position_ids", positions);
  }
  c.output(0, "Y", form.in_place ? x : c.memory(form.type, shape, place));
  c.expect_exact(0, run(problem));
  return c;
}

// ---- TensorScatter ------------------------------------------------------------------------------

// Every type that the operator takes; the codes above 6 are DLPack's for 8-bit floats.
constexpr ElementType kTypes[] = {
    {"float32", 2, 32, Type::kFloat32},
    {"float16", 2, 16, Type::kFloat16},
    {"bfloat16", 4, 16, Type::kBfloat16},
    {"float64", 2, 64, Type::kFloat64},
    {"int8", 0, 8, Type::kBool},
    {"int16", 0, 16, Type::kFloat16},
    {"int32", 0, 32, Type::kInt32},
    {"int64", 0, 64, Type::kInt64},
    {"uint8", 1, 8, Type::kBool},
    {"uint16", 1, 16, Type::kFloat16},
    {"uint32", 1, 32, Type::kInt32},
    {"uint64", 1, 64, Type::kInt64},
    {"bool", 6, 8, Type::kBool},
    {"float8_e4m3fn", 10, 8, Type::kBool},
    {"float8_e4m3fnuz", 11, 8, Type::kBool},
    {"float8_e5m2", 12, 8, Type::kBool},
    {"float8_e5m2fnuz", 13, 8, Type::kBool},
};

void fill_bytes(const View& view, bool truth, test::Random& random) {
  for_each_address(view, [&](void* at) {
    uint64_t bits = random.next();
    if (truth) bits &= 1;
    std::memcpy(at, &bits, static_cast<size_t>(test::size_of(view.type)));
  });
}

struct ScatterForm {
  std::string name;
  const char* about;
  ElementType type;
  bool circular, in_place, strided, indices;
  int64_t axis;
};

GoldenCase scatter_case(const ScatterForm& form, uint64_t seed) {
  constexpr int64_t kNewRows = 2;
  test::Random random(seed);
  GoldenCase c(form.name, form.about, "ai.onnx", "TensorScatter", 24);
  reference::TensorScatter problem;
  problem.circular = form.circular;
  problem.axis = form.axis;
  problem.in_place = form.in_place;
  if (form.axis != -2) c.set_int("axis", form.axis);
  if (form.circular) c.set_text("mode", "circular");

  std::vector<int64_t> shape = {3, 2, 4, 3};
  std::vector<int64_t> update_shape = shape;
  update_shape[static_cast<size_t>(form.axis < 0 ? form.axis + 4 : form.axis)] = kNewRows;
  const int64_t rows = shape[static_cast<size_t>(form.axis < 0 ? form.axis + 4 : form.axis)];
  Place place;
  if (form.strided) {
    place.lead = 8;
    place.tail = 16;
    place.layout.gaps = {0, 3, 0, 1};
    place.layout.order = {0, 2, 1, 3};
  }
  const bool truth = std::strcmp(form.type.name, "bool") == 0;
  const size_t past = c.memory(form.type, shape, place);
  fill_bytes(c.view(past), truth, random);
  problem.past = c.input(0, "past_cache", past);
  const size_t update = c.memory(form.type, update_shape, place);
  fill_bytes(c.view(update), truth, random);
  problem.update = c.input(1, "update", update);
  if (form.indices) {
    const size_t indices = c.memory(Type::kInt64, {shape[0]});
    for (int64_t b = 0; b < shape[0]; ++b) {
      const int64_t index = form.circular ? 3 * b - 1 : b % (rows - kNewRows + 1);
      c.view(indices).set({b}, static_cast<double>(index));
    }
    problem.write_indices = c.input(2, "write_indices", indices);
  }
  c.output(0, "present_cache", form.in_place ? past : c.memory(form.type, shape, place));

  const size_t size = static_cast<size_t>(form.type.bits / 8);
  std::vector<unsigned char> bytes;
  for (const reference::ScatterSource& source : run(problem)) {
    const View& from =
        source.from == reference::ScatterSource::kUpdate ? problem.update : problem.past;
    const auto* at = static_cast<const unsigned char*>(from.address_of(source.linear));
    bytes.insert(bytes.end(), at, at + size);
  }
  c.expect_bytes(0, std::move(bytes));
  return c;
}

}  // namespace

void add_rows(std::vector<GoldenCase>& cases) {
  const std::vector<RotaryForm> rotary = {
      {.name = "rotary_float32", .about = "heads apart, a position for each token"},
      {.name = "rotary_float16",
       .about = "heads side by side, interleaved pairs",
       .type = Type::kFloat16,
       .heads_apart = false,
       .interleaved = true},
      {.name = "rotary_bfloat16",
       .about = "half of the head, tables for each token",
       .type = Type::kBfloat16,
       .positions = false,
       .width = 6},
      {.name = "rotary_in_place",
       .about = "the output is the input, with gaps",
       .in_place = true,
       .strided = true},
  };
  uint64_t seed = 500;
  for (const RotaryForm& form : rotary) cases.push_back(rotary_case(form, ++seed));
  bool odd = false;
  for (const ElementType& type : kTypes) {
    cases.push_back(scatter_case({"scatter_" + std::string(type.name),
                                  odd ? "rows count modulo the cache's" : "an index for each row",
                                  type, odd, odd, false, true, -2},
                                 ++seed));
    odd = !odd;
  }
  cases.push_back(scatter_case({"scatter_strided", "gaps, rows before heads, bytes in front",
                                kTypes[0], false, true, true, true, 2},
                               ++seed));
  cases.push_back(scatter_case({"scatter_without_indices", "absent indices are zero, another axis",
                                kTypes[1], false, false, false, false, 3},
                               ++seed));
}

}  // namespace attn::golden
