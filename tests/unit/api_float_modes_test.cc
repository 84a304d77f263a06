// The whole interface under floating-point modes of the caller's: nothing traps, nothing differs.
#include <fenv.h>

#include <cmath>
#include <string>
#include <vector>

#include "api_fixture.h"

namespace attn::test {
namespace {

// The thread's floating-point environment until the end of a scope.
class Modes {
 public:
  Modes() { fegetenv(&saved_); }
  ~Modes() { fesetenv(&saved_); }
  Modes(const Modes&) = delete;
  Modes& operator=(const Modes&) = delete;

 private:
  fenv_t saved_;
};

attn_attribute real(const char* name, double value) {
  attn_attribute attribute{};
  attribute.name = name;
  attribute.type = ATTN_ATTRIBUTE_FLOAT;
  attribute.f = value;
  return attribute;
}

attn_status make_op(attn_context* context, attn_attribute special, attn_op** op,
                    attn_error* error) {
  const attn_attribute attributes[] = {api_int("num_heads", 2), api_int("kv_num_heads", 1),
                                       special};
  return create_gqa(context, attributes, nullptr, op, error);
}

// Calls the library in the modes that `enter` sets: the test's own arithmetic stays out of them.
template <class Enter, class Call>
auto in_modes(const Enter& enter, const Call& call) {
  const Modes scope;
  enter();
  feclearexcept(FE_ALL_EXCEPT);
  return call();
}

// What a program sees of a whole life: messages, description, results.
template <class Enter>
std::vector<std::string> life(const Enter& enter) {
  std::vector<std::string> seen;
  const attn_context_desc desc = api_context_desc();
  attn_context* context = in_modes(enter, [&] { return make_api_context(&desc); });
  attn_session* session = in_modes(enter, [&] { return make_api_session(context); });
  ApiError error;
  attn_op* op = nullptr;
  for (const double wrong : {1e-300, 1e300, std::nan("")}) {
    EXPECT_EQ(in_modes(enter, [&] { return make_op(context, real("scale", wrong), &op, &error); }),
              ATTN_INVALID_ARGUMENT);
    seen.push_back(error.text());
  }
  for (const attn_attribute& good :
       {real("scale", 0.1), real("softcap", 0.3), real("qk_norm_epsilon", 1e-7),
        api_int("scale", 1), api_int("causal", 1)}) {
    DecodeStep step(2, 3, 4);
    for (size_t i = 0; i < step.q.size(); ++i) step.q[i] = 0.1f * static_cast<float>(i % 7);
    for (size_t i = 0; i < step.key_cache.size(); ++i) {
      step.key_cache[i] = 0.01f * static_cast<float>(i % 11);
      step.value_cache[i] = 1.0f / static_cast<float>(i + 3);
    }
    attn_support support = ATTN_SUPPORT_INIT;
    const attn_query_desc question = step.query_desc();
    attn_plan* plan = nullptr;
    std::string text(1 << 14, '\0');
    const attn_status status = in_modes(enter, [&] {
      attn_status first = make_op(context, good, &op, &error);
      if (first == ATTN_OK) first = attn_op_query(op, &question, &support, &error);
      if (first == ATTN_OK) first = step.prepare(op, &plan, &error);
      if (first == ATTN_OK) {
        first = attn_plan_describe(plan, text.data(), text.size(), nullptr, &error);
      }
      if (first == ATTN_OK) first = step.execute(plan, session, &error);
      attn_plan_release(plan);
      attn_op_release(op);
      return first;
    });
    EXPECT_EQ(status, ATTN_OK) << error.text();
    seen.push_back(text.substr(0, text.find('\0')));
    seen.emplace_back(reinterpret_cast<const char*>(step.y.data()), step.y.size() * sizeof(float));
  }
  in_modes(enter, [&] {
    attn_session_release(session);
    attn_context_release(context);
    return 0;
  });
  return seen;
}

TEST(ApiFloatModes, NothingTrapsWhereTheCallerTrapsEverything) {
  const Modes scope;
  if (feenableexcept(FE_ALL_EXCEPT) == -1) GTEST_SKIP() << "this processor traps nothing";
  fedisableexcept(FE_ALL_EXCEPT);
  const std::vector<std::string> plain = life([] {});
  EXPECT_EQ(life([] { feenableexcept(FE_ALL_EXCEPT); }), plain);
}

TEST(ApiFloatModes, RoundingOfTheCallerChangesNothing) {
  const std::vector<std::string> plain = life([] {});
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    EXPECT_EQ(life([mode] { fesetround(mode); }), plain) << "mode " << mode;
  }
}

// The caller finds its modes as they were.
TEST(ApiFloatModes, ModesComeBack) {
  const attn_context_desc desc = api_context_desc();
  const Modes scope;
  fesetround(FE_UPWARD);
  feenableexcept(FE_DIVBYZERO);
  attn_context* context = make_api_context(&desc);
  EXPECT_EQ(fegetround(), FE_UPWARD);
  EXPECT_EQ(fegetexcept(), FE_DIVBYZERO);
  fedisableexcept(FE_ALL_EXCEPT);
  attn_context_release(context);
}

}  // namespace
}  // namespace attn::test
