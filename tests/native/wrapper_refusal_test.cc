// attn_c.hpp: what it refuses before the library is asked, and what it says to the library.
#include <attn_c_host.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <gtest/gtest.h>

namespace {

using attn_c::Arguments;
using attn_c::Attributes;
using attn_c::Context;
using attn_c::ContextOptions;
using attn_c::InvalidArgument;
using attn_c::Op;
using attn_c::Tensor;

constexpr std::string_view kHidden("shown\0hidden", 12);

Context quiet_context() {
  ContextOptions options;
  options.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  return Context(options);
}

// The message of the InvalidArgument that `call` throws.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing was refused";
}

Op scatter(const Context& context) { return Op(context, "ai.onnx", "TensorScatter", 24); }

TEST(WrapperRefusalTest, ConstantMemoryIsNoOutput) {
  const Context context = quiet_context();
  const attn_c::Session session(context);
  const Op op = scatter(context);
  static const float kConstant[4] = {9, 9, 9, 9};
  float past[4] = {1, 2, 3, 4}, update[2] = {5, 6}, present[4] = {};
  const Arguments inputs = {{0, Tensor(past, {1, 2, 2})}, {1, Tensor(update, {1, 1, 2})}};
  const Arguments good = {{0, Tensor(present, {1, 2, 2})}};
  const attn_c::Plan plan = op.prepare(inputs, good);
  const Arguments constants[] = {
      {{0, Tensor(kConstant, {1, 2, 2})}},
      {{0, Tensor(attn_c::kFloat32, {1, 2, 2}, static_cast<const void*>(kConstant))}}};
  for (const Arguments& bad : constants) {
    EXPECT_NE(refusal([&] { plan.execute(session, inputs, bad); }).find("read"), std::string::npos);
    EXPECT_EQ(kConstant[0], 9);
  }
  EXPECT_EQ(Tensor(&kConstant[0]).flags & ATTN_TENSOR_READ_ONLY, ATTN_TENSOR_READ_ONLY);
  EXPECT_EQ(Tensor(&past[0]).flags & ATTN_TENSOR_READ_ONLY, 0u);
  plan.execute(session, inputs, good);
  EXPECT_EQ(present[0], 5);
  // As an input, constant memory serves.
  const Arguments read = {{0, Tensor(kConstant, {1, 2, 2})}, {1, Tensor(update, {1, 1, 2})}};
  plan.execute(session, read, good);
  EXPECT_EQ(present[3], 9);
}

TEST(WrapperRefusalTest, StridesDoNotOverflow) {
  float number = 0;
  constexpr int64_t kLong = int64_t{1} << 40;
  EXPECT_THROW(Tensor(&number, {kLong, kLong, 4}), std::length_error);
  EXPECT_THROW(Tensor(&number, {2, 2, std::numeric_limits<int64_t>::max()}), std::length_error);
  EXPECT_EQ(Tensor(&number, {2, kLong, 4}).strides[0], 4 * kLong);
  EXPECT_EQ(Tensor(&number, {1, std::numeric_limits<int64_t>::max()}).strides[0],
            std::numeric_limits<int64_t>::max());
  // Without data there are no strides; negative sizes are the library's to refuse.
  EXPECT_EQ(Tensor(attn_c::kFloat32, {kLong, kLong, 4}).strides[0], 0);
  EXPECT_EQ(Tensor(&number, {std::numeric_limits<int64_t>::min(), 3, -7}).strides[0], 3);
}

TEST(WrapperRefusalTest, TextsEndWhereTheyEnd) {
  const Context context = quiet_context();
  const std::string text(kHidden);
  const auto expect = [&](const char* what, const auto& call) {
    EXPECT_EQ(refusal(call), std::string(what) + " contains a zero byte: shown");
  };
  expect("the domain", [&] { Op(context, text, "TensorScatter", 24); });
  expect("the operator's type", [&] { Op(context, "", text, 24); });
  expect("the label", [&] { Op(context, "", "TensorScatter", 24, {}, text); });
  expect("the label", [&] { attn_c::Session(context, text); });
  expect("an attribute's name", [] { Attributes().set(kHidden, 1); });
  Arguments none;
  expect("the engine's name", [&] { scatter(context).query(none, none, {}, text); });
  attn_c::PrepareOptions prepare;
  prepare.engine = text;
  expect("the engine's name", [&] { scatter(context).prepare(none, none, prepare); });
  std::string ContextOptions::* const texts[] = {
      &ContextOptions::simd_level, &ContextOptions::engine, &ContextOptions::driver_path,
      &ContextOptions::nvrtc_path, &ContextOptions::cache_folder};
  const char* names[] = {"simd_level", "engine", "driver_path", "nvrtc_path", "cache_folder"};
  for (size_t i = 0; i < 5; ++i) {
    ContextOptions options;
    options.*texts[i] = text;
    expect(names[i], [&] { Context opened(options); });
  }
  // An attribute's text has a length of its own: the library sees all of it.
  Attributes list;
  list.set("mode", kHidden);
  EXPECT_EQ(list.data()[0].count, kHidden.size());
}

TEST(WrapperRefusalTest, AttributesTakeEveryNumber) {
  Attributes list;
  const size_t size = 7;
  const long long wide = -8;
  const unsigned word = 9;
  list.set("a", size).set("a", wide).set("a", word).set("a", true).set("a", int8_t{-3});
  const int64_t integers[] = {7, -8, 9, 1, -3};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(list.data()[i].type, ATTN_ATTRIBUTE_INT);
    EXPECT_EQ(list.data()[i].i, integers[i]);
  }
  list.set("b", 0.5f).set("b", 0.25L);
  EXPECT_EQ(list.data()[5].f, 0.5);
  EXPECT_EQ(list.data()[6].f, 0.25);
  list.set("c", {0, 2}).set("c", std::vector<int>{0, 2}).set("c", std::vector<uint8_t>{0, 2});
  for (size_t i = 7; i < 10; ++i) {
    ASSERT_EQ(list.data()[i].type, ATTN_ATTRIBUTE_INTS);
    ASSERT_EQ(list.data()[i].count, 2u);
    EXPECT_EQ(static_cast<const int64_t*>(list.data()[i].data)[1], 2);
  }
  list.set("d", {0.5, 2.0})
      .set("d", std::vector<double>{0.5, 2})
      .set("d", std::vector<float>{1, 2});
  for (size_t i = 10; i < 13; ++i) {
    ASSERT_EQ(list.data()[i].type, ATTN_ATTRIBUTE_FLOATS);
    EXPECT_EQ(static_cast<const float*>(list.data()[i].data)[1], 2.0f);
  }
  const std::string text = "of a string";
  list.set("e", text).set("e", "of a literal").set("e", std::string_view("of a view"));
  for (size_t i = 13; i < 16; ++i) EXPECT_EQ(list.data()[i].type, ATTN_ATTRIBUTE_STRING);
  const char* nothing = nullptr;
  EXPECT_EQ(refusal([&] { list.set("f", nothing); }), "attribute f: the text is null");
  EXPECT_EQ(refusal([&] { list.set("f", std::numeric_limits<uint64_t>::max()); }),
            "attribute f: 18446744073709551615 is beyond 2^63 - 1");
  EXPECT_NE(refusal([&] { list.set("f", std::vector<uint64_t>{~uint64_t{0}}); }).find("beyond"),
            std::string::npos);
  EXPECT_EQ(list.size(), 16u) << "what is refused is not there";
}

template <class Kind>
void expect_class(attn_status status) {
  try {
    attn_c::detail::refuse(status, "words");
  } catch (const attn_c::Error& error) {
    EXPECT_EQ(typeid(error), typeid(Kind)) << "status " << status;
    EXPECT_EQ(error.status(), status);
    EXPECT_STREQ(error.what(), "words");
  }
}

TEST(WrapperRefusalTest, EveryStatusHasItsClass) {
  expect_class<attn_c::InvalidArgument>(ATTN_INVALID_ARGUMENT);
  expect_class<attn_c::Unsupported>(ATTN_UNSUPPORTED);
  expect_class<attn_c::VersionMismatch>(ATTN_VERSION);
  expect_class<attn_c::Unavailable>(ATTN_UNAVAILABLE);
  expect_class<attn_c::NotPrepared>(ATTN_NOT_PREPARED);
  expect_class<attn_c::CaptureRefused>(ATTN_CAPTURE);
  expect_class<attn_c::Busy>(ATTN_BUSY);
  expect_class<attn_c::OutOfMemory>(ATTN_OUT_OF_MEMORY);
  expect_class<attn_c::CompileFailed>(ATTN_COMPILE);
  expect_class<attn_c::DeviceFailed>(ATTN_DEVICE);
  expect_class<attn_c::Fault>(ATTN_FAULT);
  expect_class<attn_c::Internal>(ATTN_INTERNAL);
  expect_class<attn_c::Error>(ATTN_INTERNAL + 1);  // of a newer library
}

}  // namespace
