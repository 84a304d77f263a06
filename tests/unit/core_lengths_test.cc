// The rules of seqlens_k: what is resolved, which bits a bad row gets, what the message names.
#include "core/lengths.h"

#include <climits>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace attn {
namespace {

// Lengths of a batch with one value a row; a cache of 16 rows, tables out of the way.
struct Case {
  std::vector<int32_t> values;
  int32_t bound = 16;
  std::vector<int64_t> positions;
  Lengths lengths;

  Case(std::vector<int32_t> v, int32_t total_bound, int64_t query_rows, int64_t new_rows)
      : values(std::move(v)), bound(total_bound) {
    lengths.spec.rule = LengthRule::kGroupQuery;
    lengths.spec.values = Placement::kHost;
    lengths.spec.bound = Placement::kHost;
    lengths.batch = static_cast<int64_t>(values.size());
    lengths.query_rows = query_rows;
    lengths.new_rows = new_rows;
    lengths.values = values.data();
    lengths.bound = &bound;
    lengths.past_capacity = 16;
    lengths.present_capacity = 16;
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  uint32_t faults(int64_t b = 0) const {
    RowLengths row;
    return resolve_row(lengths, b, row);
  }
  RowLengths row(int64_t b = 0) const {
    RowLengths resolved;
    EXPECT_EQ(resolve_row(lengths, b, resolved), 0u);
    return resolved;
  }
  std::string message() const {
    std::vector<RowLengths> rows(values.size());
    try {
      resolve_lengths(lengths, rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
      return error.message();
    }
    return "";
  }
};

void expect_row(const RowLengths& row, int64_t past, int64_t appended, int64_t total,
                int64_t start) {
  EXPECT_TRUE(row.live);
  EXPECT_EQ(row.past, past);
  EXPECT_EQ(row.appended, appended);
  EXPECT_EQ(row.total, total);
  EXPECT_EQ(row.query_start, start);
}

TEST(CoreLengths, UniformFollowsFromShapes) {
  Lengths lengths;
  lengths.batch = 2;
  lengths.query_rows = 3;
  lengths.new_rows = 5;
  lengths.uniform_past = 7;
  std::vector<RowLengths> rows(2);
  resolve_lengths(lengths, rows);
  for (const RowLengths& row : rows) expect_row(row, 7, 5, 12, 7);
}

TEST(CoreLengths, DecodeStandsAtTheEnd) { expect_row(Case({9}, 16, 1, 1).row(), 9, 1, 10, 9); }

TEST(CoreLengths, ChunkOfSeveralRowsInABatch) {
  const Case c({9, 3, 15}, 16, 3, 3);
  expect_row(c.row(0), 7, 3, 10, 7);
  expect_row(c.row(1), 1, 3, 4, 1);
  expect_row(c.row(2), 13, 3, 16, 13);
}

TEST(CoreLengths, FirstPromptMayBePadded) {
  const Case c({4, 1}, 5, 5, 5);
  expect_row(c.row(0), 0, 5, 5, 0);
  expect_row(c.row(1), 0, 5, 2, 0);  // two valid rows; the padded ones are appended too
}

TEST(CoreLengths, FirstPromptNeedsBoundAndNewRowsToEqualTheQueries) {
  EXPECT_EQ(Case({1}, 6, 5, 5).faults(), 2u | 4u);  // bound 6: a chunk, too short
  EXPECT_EQ(Case({1}, 5, 5, 0).faults(), 4u);       // nothing appended: no prompt
}

TEST(CoreLengths, FirstPromptWithAnOldPastIgnoresIt) {
  Case c({4}, 5, 5, 5);
  c.lengths.past_capacity = 0;
  expect_row(c.row(), 0, 5, 5, 0);
}

TEST(CoreLengths, SharedCacheAppendsNothing) {
  const Case c({9}, 16, 4, 0);
  expect_row(c.row(), 10, 0, 10, 6);
}

TEST(CoreLengths, NewKeysAndQueriesMayDiffer) {
  expect_row(Case({9}, 16, 2, 5).row(), 5, 5, 10, 8);
}

// Without query rows and new keys, -1 is the one way to say that a sequence is empty.
TEST(CoreLengths, ACallWithoutRowsFindsAnEmptySequence) {
  for (const int32_t bound : {0, 16}) {
    const Case c({-1}, bound, 0, 0);
    RowLengths row{1, 2, 3, 4, true};
    ASSERT_EQ(resolve_row(c.lengths, 0, row), 0u);
    EXPECT_FALSE(row.live);
    EXPECT_EQ(row.total, 0);
  }
  EXPECT_EQ(Case({-2}, 16, 0, 0).faults(), 2u | 4u);
  EXPECT_EQ(Case({-1}, 16, 0, 1).faults(), 2u);
  EXPECT_EQ(Case({-1}, 16, 1, 0).faults(), 2u | 4u);
  expect_row(Case({9}, 16, 0, 0).row(), 10, 0, 10, 10);
}

TEST(CoreLengths, EmptySlotOnlyWithTheAttribute) {
  Case c({-1, 3}, 16, 1, 1);
  EXPECT_NE(c.faults(0), 0u);
  EXPECT_NE(c.message().find("empty_slots"), std::string::npos) << c.message();
  c.lengths.spec.empty_slots = true;
  RowLengths row{1, 2, 3, 4, true};
  ASSERT_EQ(resolve_row(c.lengths, 0, row), 0u);
  EXPECT_FALSE(row.live);
  EXPECT_EQ(row.past + row.appended + row.total + row.query_start, 0);
  expect_row(c.row(1), 3, 1, 4, 3);
  c.values[0] = -2;
  EXPECT_NE(c.faults(0), 0u);
}

TEST(CoreLengths, FaultBits) {
  EXPECT_EQ(Case({INT_MAX}, 16, 1, 1).faults(), 1u);
  EXPECT_EQ(Case({2}, 16, 2, 5).faults(), 2u);
  EXPECT_EQ(Case({2}, 16, 5, 2).faults(), 4u);
  EXPECT_EQ(Case({2}, 16, 5, 5).faults(), 2u | 4u);
  EXPECT_EQ(Case({-5}, 16, 1, 1).faults(), 2u | 4u);
  EXPECT_EQ(Case({-1}, 5, 5, 5).faults(), 2u);  // a first prompt of no rows
  EXPECT_EQ(Case({INT_MIN}, 16, 0, 0).faults(), 2u | 4u);
  EXPECT_EQ(Case({12}, 12, 1, 1).faults(), 64u);
  EXPECT_EQ(Case({16}, 100, 1, 1).faults(), 16u);
  EXPECT_EQ(Case({16}, 16, 1, 1).faults(), 16u | 64u);
  EXPECT_EQ(Case({INT_MAX - 1}, 16, 1, 1).faults(), 8u | 16u | 64u);
}

TEST(CoreLengths, PastBufferAndPresentAreJudgedApart) {
  Case c({9}, 16, 1, 1);
  c.lengths.past_capacity = 8;
  EXPECT_EQ(c.faults(), 8u);
  c.lengths.past_capacity = 9;
  EXPECT_EQ(c.faults(), 0u);
  c.lengths.present_capacity = 9;
  EXPECT_EQ(c.faults(), 16u);
  c.lengths.present_capacity = -1;  // no present bound
  EXPECT_EQ(c.faults(), 0u);
}

TEST(CoreLengths, ImpliedPositionsMustLieInTheTable) {
  Case c({9}, 16, 4, 4);
  c.lengths.table_rows = 10;
  EXPECT_EQ(c.faults(), 0u);
  c.lengths.table_rows = 9;
  EXPECT_EQ(c.faults(), 32u);
  EXPECT_EQ(
      c.message(),
      "seqlens_k[0] is 9, a total of 10 keys (seqlens_k holds totals minus 1): a position "
      "lies outside the rotary table; query row 3 stands at position 9, the table has 9 rows");
  c.lengths.table_rows = 3;
  EXPECT_NE(c.message().find("query row 0 stands at position 6"), std::string::npos);
}

TEST(CoreLengths, PaddedRowsOfAPromptNeedNoPosition) {
  Case c({1}, 5, 5, 5);
  c.lengths.table_rows = 2;
  EXPECT_EQ(c.faults(), 0u);
  c.positions = {1, 0, 99, -4, 7};
  c.lengths.positions = c.positions.data();
  EXPECT_EQ(c.faults(), 0u);
  c.positions[1] = 2;
  EXPECT_EQ(c.faults(), 32u);
}

TEST(CoreLengths, ExplicitPositionsAloneDecide) {
  Case c({9, 9}, 16, 2, 2);
  c.lengths.table_rows = 4;  // shorter than the total
  c.positions = {0, -1, 9, -1, 3, -1, 3, -1};
  c.lengths.positions = c.positions.data();
  c.lengths.position_batch = 4;
  c.lengths.position_row = 2;
  EXPECT_EQ(c.faults(0), 32u);
  EXPECT_EQ(c.faults(1), 0u);
  EXPECT_EQ(c.message(),
            "position_ids[0, 1] is 9: a position lies outside the rotary table, which has 4 rows");
}

TEST(CoreLengths, ReadsWithStrides) {
  Case c({1, -9, 5, -9, 7}, 16, 1, 1);
  c.lengths.batch = 3;
  c.lengths.value_stride = 2;
  EXPECT_EQ(c.row(1).total, 6);
  EXPECT_EQ(c.row(2).total, 8);
  c.lengths.values = c.values.data() + 4;
  c.lengths.value_stride = -2;
  EXPECT_EQ(c.row(2).total, 2);
}

TEST(CoreLengths, MessagesNameIndexValueAndLimit) {
  EXPECT_EQ(Case({3, 20}, 64, 1, 1).message(),
            "seqlens_k[1] is 20, a total of 21 keys (seqlens_k holds totals minus 1): past reaches "
            "beyond the past buffer; 20 of them are past keys, the past buffer holds 16");
  EXPECT_EQ(Case({12}, 12, 1, 1).message(),
            "seqlens_k[0] is 12, a total of 13 keys (seqlens_k holds totals minus 1): total "
            "exceeds total_sequence_length, which is 12");
  EXPECT_EQ(Case({2}, 16, 5, 5).message(),
            "seqlens_k[0] is 2, a total of 3 keys (seqlens_k holds totals minus 1): past is "
            "negative (total is shorter than the new keys); there are 5 new keys a batch row");
  EXPECT_NE(Case({INT_MAX}, 16, 1, 1).message().find("the limit is 2147483647"), std::string::npos);
  EXPECT_EQ(Case({}, -3, 1, 1).message(), "total_sequence_length is -3: it must be at least 0");
  EXPECT_EQ(Case({3, 15}, 16, 1, 1).message(), "");
}

// A device knows the bound; what the values break whatever it is, the host says.
TEST(CoreLengths, WithoutTheBound) {
  const auto message = [](std::vector<int32_t> values, int64_t rows, int64_t new_rows,
                          bool empty_slots) {
    Case c(std::move(values), 0, rows, new_rows);
    c.lengths.bound = nullptr;
    c.lengths.spec.bound = Placement::kDevice;
    c.lengths.spec.empty_slots = empty_slots;
    try {
      check_without_bound(c.lengths);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(message({3, 15, 0}, 1, 1, false), "");
  EXPECT_EQ(message({-1, 3}, 1, 1, true), "");
  EXPECT_EQ(message({0, 1}, 4, 4, false), "") << "a first prompt with padding, or it is not";
  for (const auto& [value, words] :
       {std::pair{16, "the present buffer holds 16"}, std::pair{INT_MAX, "total overflows int32"},
        std::pair{-1, "the least value is 0"}, std::pair{INT_MIN, "the least value is 0"}}) {
    EXPECT_NE(message({3, value}, 1, 1, false).find(words), std::string::npos)
        << value << ": " << message({3, value}, 1, 1, false);
  }
  EXPECT_NE(message({1}, 2, 4, false).find("there are 4 new keys"), std::string::npos);
}

TEST(CoreLengths, LengthsOnTheDevice) {
  LengthSpec spec;
  spec.rule = LengthRule::kCumulative;
  spec.values = spec.bound = Placement::kDevice;
  EXPECT_TRUE(are_on_device(spec));
  spec.bound = Placement::kHost;
  EXPECT_FALSE(are_on_device(spec)) << "the keys' ends are fixed by a capture";
  spec.rule = LengthRule::kGroupQuery;
  EXPECT_TRUE(are_on_device(spec)) << "a bound alone is";
  spec.values = Placement::kHost;
  EXPECT_FALSE(are_on_device(spec));
}

TEST(CoreLengths, FaultTextJoinsRules) {
  EXPECT_EQ(fault_text(0), "");
  EXPECT_EQ(fault_text(1), "total overflows int32");
  EXPECT_EQ(fault_text(2 | 16),
            "past is negative (total is shorter than the new keys); total reaches beyond the "
            "present capacity");
  EXPECT_EQ(fault_text(0x80000000u),
            "a length rule that this version has no words for (bits 2147483648)");
  // Every public bit has words of its own.
  std::string all;
  for (uint32_t bit = 1; bit <= 1024; bit *= 2) {
    const std::string text = fault_text(bit);
    EXPECT_EQ(text.find("no words"), std::string::npos) << bit;
    all += (all.empty() ? "" : "; ") + text;
  }
  EXPECT_EQ(fault_text(2047), all);
  EXPECT_NE(fault_text(2048 | 1).find("total overflows int32; a length rule"), std::string::npos);
}

}  // namespace
}  // namespace attn
