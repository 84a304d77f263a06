// Lengths from valid counts, from the end of a mask and from cumulative lengths: values, faults and
// their words.
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/lengths.h"

namespace attn {
namespace {

std::string words_of(const Lengths& lengths) {
  std::vector<RowLengths> rows(static_cast<size_t>(lengths.batch));
  try {
    resolve_lengths(lengths, rows);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

Lengths valid_lengths(const std::vector<int64_t>& values) {
  Lengths lengths;
  lengths.spec.rule = LengthRule::kValid;
  lengths.batch = static_cast<int64_t>(values.size());
  lengths.query_rows = 3;
  lengths.new_rows = 8;
  lengths.most_keys = 8;
  lengths.valid = values.data();
  return lengths;
}

TEST(LengthRules, ValidCounts) {
  const std::vector<int64_t> values = {8, 0, 2};
  const Lengths lengths = valid_lengths(values);
  RowLengths row;
  ASSERT_EQ(resolve_row(lengths, 0, row), 0u);
  EXPECT_EQ(row.total, 8);
  EXPECT_EQ(row.past, 0);
  EXPECT_EQ(row.appended, 8);
  EXPECT_EQ(row.query_start, 5);
  ASSERT_EQ(resolve_row(lengths, 2, row), 0u);
  EXPECT_EQ(row.query_start, -1);  // the first query stands before all keys
  EXPECT_TRUE(row.live);
  EXPECT_EQ(words_of(lengths), "");

  for (const int64_t bad : {int64_t{-1}, int64_t{9}, INT64_MAX, INT64_MIN}) {
    const std::vector<int64_t> wrong = {8, bad};
    EXPECT_EQ(resolve_row(valid_lengths(wrong), 1, row), ATTN_FAULT_VALID_LENGTH);
    EXPECT_EQ(words_of(valid_lengths(wrong)),
              cat("nonpad_kv_seqlen[1] is ", bad, ": a valid length lies outside [0, L]; L is 8"));
  }
}

// A boolean mask (B, H, S, columns) of 2 x 2 x 2 x 4 cells.
Lengths mask_lengths(const std::vector<uint8_t>& cells) {
  Lengths lengths;
  lengths.spec.rule = LengthRule::kMaskEnd;
  lengths.batch = 2;
  lengths.query_rows = 2;
  lengths.new_rows = 1;
  lengths.most_keys = 6;
  lengths.mask = {cells.data(), kBool, 2, 16, 8, 4, 1, 1, 4};
  return lengths;
}

TEST(LengthRules, EndOfAMask) {
  std::vector<uint8_t> cells(32, 0);
  cells[3] = 1;       // the first query row says nothing
  cells[4 + 1] = 1;   // row 1 of head 0: two keys
  cells[12 + 2] = 1;  // of head 1: three
  cells[16 + 4 + 3] = 1;
  RowLengths row;
  ASSERT_EQ(resolve_row(mask_lengths(cells), 0, row), 0u);
  EXPECT_EQ(row.total, 3);
  EXPECT_EQ(row.past, 2);
  EXPECT_EQ(row.query_start, 1);
  ASSERT_EQ(resolve_row(mask_lengths(cells), 1, row), 0u);
  EXPECT_EQ(row.total, 4);  // the mask is shorter than the cache: what is beyond is hidden

  cells[16 + 4 + 3] = 0;
  EXPECT_EQ(resolve_row(mask_lengths(cells), 1, row), ATTN_FAULT_PAST_NEGATIVE);
  EXPECT_EQ(words_of(mask_lengths(cells)),
            "attn_mask ends the keys of batch row 1 at 0: past is negative (total is shorter than "
            "the new keys); there are 1 new keys a batch row");
}

TEST(LengthRules, AdditiveMasksShowFromMinusThousandOn) {
  const std::vector<float> cells = {0, -1000, -1000.5f, -1e9f};
  Lengths lengths;
  lengths.spec.rule = LengthRule::kMaskEnd;
  lengths.batch = 1;
  lengths.most_keys = 4;
  lengths.mask = {cells.data(), kFloat32, 1, 0, 0, 0, 1, 0, 4};
  RowLengths row;
  ASSERT_EQ(resolve_row(lengths, 0, row), 0u);
  EXPECT_EQ(row.total, 2);
}

Lengths packed_lengths(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys) {
  Lengths lengths;
  lengths.spec.rule = LengthRule::kCumulative;
  lengths.batch = static_cast<int64_t>(queries.size()) - 1;
  lengths.query_rows = 5;
  lengths.most_keys = 7;
  lengths.values = queries.data();
  lengths.key_values = keys.data();
  lengths.query_tokens = 9;
  lengths.key_tokens = 12;
  return lengths;
}

TEST(LengthRules, CumulativeLengths) {
  const std::vector<int32_t> queries = {0, 4, 4, 9}, keys = {1, 8, 8, 10};
  const Lengths lengths = packed_lengths(queries, keys);
  EXPECT_EQ(words_of(lengths), "");
  RowLengths row;
  ASSERT_EQ(resolve_row(lengths, 0, row), 0u);
  EXPECT_EQ(row.query_offset, 0);
  EXPECT_EQ(row.query_rows, 4);
  EXPECT_EQ(row.key_offset, 1);
  EXPECT_EQ(row.total, 7);
  EXPECT_EQ(row.query_start, 3);
  ASSERT_EQ(resolve_row(lengths, 1, row), 0u);
  EXPECT_EQ(row.query_rows, 0);
  EXPECT_EQ(row.total, 0);
  ASSERT_EQ(resolve_row(lengths, 2, row), 0u);
  EXPECT_EQ(row.query_start, -3);
}

TEST(LengthRules, CumulativeLengthsThatAreWrong) {
  const struct {
    std::vector<int32_t> queries, keys;
    const char* text;
  } wrong[] = {
      {{0, 4, 3}, {0, 1, 2}, "cu_seqlens_q[1] and [2] are 4 and 3: cumulative lengths do not"},
      {{-1, 3, 4}, {0, 1, 2}, "cu_seqlens_q[0] and [1] are -1 and 3"},
      {{0, 5, 10}, {0, 1, 2}, "beyond the tokens, of which there are 9"},
      {{0, 1, 2}, {0, 1, 13}, "cu_seqlens_k[1] and [2] are 1 and 13"},
      {{0, 6, 9}, {0, 1, 2}, "cu_seqlens_q[1] is 6: sequence 0 has 6 queries, more than the 5"},
      {{0, 1, 2}, {0, 8, 9}, "cu_seqlens_k[1] is 8: sequence 0 has 8 keys, more than the 7"},
  };
  for (const auto& one : wrong) {
    const Lengths lengths = packed_lengths(one.queries, one.keys);
    const std::string words = words_of(lengths);
    EXPECT_NE(words.find(one.text), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace attn
