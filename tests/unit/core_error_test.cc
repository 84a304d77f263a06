#include "core/error.h"

#include <limits>

#include <gtest/gtest.h>

namespace attn {
namespace {

TEST(CoreError, CatJoinsTextsAndNumbers) {
  EXPECT_EQ(cat("a", 1, ' ', int64_t{-5}, std::string("b"), uint8_t{200}), "a1 -5b200");
  EXPECT_EQ(cat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(cat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(cat(0.5, ' ', 1e-6f), "0.5 9.999999974752427e-07");
  EXPECT_EQ(cat(), "");
}

TEST(CoreError, ThrowsStatusAndMessage) {
  try {
    fail_argument("axis is ", 7, ": at most ", 3);
    FAIL() << "fail_argument returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
    EXPECT_EQ(error.message(), "axis is 7: at most 3");
    EXPECT_STREQ(error.what(), "axis is 7: at most 3");
  }
  try {
    fail_unsupported("no");
    FAIL() << "fail_unsupported returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ATTN_UNSUPPORTED);
  }
}

}  // namespace
}  // namespace attn
