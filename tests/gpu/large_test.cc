// Sizes beyond 32 bits, long prompts, and what they may cost in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <vector>

#include "gpu/driver.h"
#include "gpu/step.h"
#include "support/compare.h"

namespace attn::gpu {
namespace {

using test::Type;

class GpuLarge : public GpuTest {};

constexpr int64_t kBytes = 2;  // of a bfloat16

attn_tensor describe(const Gpu& gpu, void* data, attn_dtype dtype,
                     std::initializer_list<int64_t> shape) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.device_type = ATTN_DEVICE_CUDA;
  tensor.device_id = gpu.id();
  tensor.dtype = dtype;
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.data = data;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    tensor.shape[axis] = shape.begin()[axis];
    tensor.strides[axis] = stride;
    stride *= tensor.shape[axis];
  }
  return tensor;
}

attn_dtype bfloat16() { return test::dtype_of(Type::kBfloat16); }
attn_dtype int32() { return test::dtype_of(Type::kInt32); }

// Random bfloat16 numbers, kept as bits and as what they stand for.
struct Numbers {
  Numbers(int64_t count, test::Random& random, double sigma) {
    for (int64_t i = 0; i < count; ++i) {
      bits.push_back(test::encode_bfloat16(sigma * random.normal()));
      values.push_back(test::decode_bfloat16(bits.back()));
    }
  }
  std::vector<uint16_t> bits;
  std::vector<double> values;
};

// Frees the test from memory that the device does not have.
bool device_has(const Gpu& gpu, uint64_t bytes) {
  const PrimaryContext primary(gpu.id());
  const CurrentContext current(primary.get());
  size_t free = 0, total = 0;
  must_driver("cuMemGetInfo", Driver::get().MemGetInfo(&free, &total));
  return free >= bytes;
}

void zero(const Gpu& gpu, const PlainMemory& memory) {
  const PrimaryContext primary(gpu.id());
  const CurrentContext current(primary.get());
  must_driver("cuMemsetD8",
              Driver::get().MemsetD8(reinterpret_cast<uintptr_t>(memory.data()), 0, memory.size()));
}

test::Handle<attn_op> make_op(const Gpu& gpu, int64_t heads, int64_t kv_heads, int64_t window,
                              double scale) {
  test::Attributes attributes;
  attributes.set_int("num_heads", heads).set_int("kv_num_heads", kv_heads);
  attributes.set_int("local_window_size", window).set_float("scale", scale);
  test::Handle<attn_op> op;
  const test::Outcome outcome = test::create_op(op, gpu.context(), "com.microsoft",
                                                "GroupQueryAttention", 1, attributes, "large");
  if (!outcome.ok()) throw std::runtime_error(outcome.message);
  return op;
}

test::Handle<attn_plan> make_plan(attn_op* op, const test::Arguments& inputs,
                                  const test::Arguments& outputs, const char* engine) {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  desc.engine = engine;
  test::Handle<attn_plan> plan;
  const test::Outcome outcome = test::create(plan, [&](attn_plan** out, attn_error* error) {
    return attn_op_prepare(op, &desc, out, error);
  });
  if (!outcome.ok()) throw std::runtime_error(outcome.message);
  return plan;
}

void execute(attn_plan* plan, attn_session* session, const test::Arguments& inputs,
             const test::Arguments& outputs, const Stream& stream) {
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream.get();
  must("execute", [&](attn_error* error) {
    return attn_plan_execute(plan, session, inputs.data(), inputs.size(), outputs.data(),
                             outputs.size(), &desc, error);
  });
  stream.wait();
}

// Weighted mean of values: exp(scores) as weights, and `zeros` more keys of score and value zero.
std::vector<double> mean(const std::vector<double>& scores,
                         const std::vector<const double*>& values, int64_t size, double zeros) {
  double top = zeros > 0 ? 0 : scores.front();
  for (double score : scores) top = std::max(top, score);
  double sum = zeros * std::exp(-top);
  std::vector<double> out(static_cast<size_t>(size), 0);
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - top);
    sum += weight;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * values[j][d];
  }
  for (double& value : out) value /= sum;
  return out;
}

double dot(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += a[d] * b[d];
  return sum;
}

// Two sequences of 1.06 million keys, 8 heads of 128: each cache has more than 2^31 elements. All
// keys and values are zero but for the last ones of the second sequence.
constexpr int64_t kBatch = 2, kKvHeads = 8, kHeads = 16, kSize = 128, kLength = 1060000;
constexpr int64_t kTail = 300, kShortPast = 3;

class FarEnd {
 public:
  explicit FarEnd(const Gpu& gpu)
      : gpu_(gpu),
        stream_(gpu),
        keys_(gpu, kCacheBytes),
        values_(gpu, kCacheBytes),
        session_(make_session(gpu)) {}

  // Appends `rows` tokens at the end of the second sequence, and behind three keys of the first.
  // Returns what is wrong.
  std::string run(int64_t rows, int64_t window, const char* engine, uint64_t seed) {
    zero(gpu_, keys_);
    zero(gpu_, values_);
    test::Random random(seed);
    // Scores of the tail vary by about 6, so that it outweighs the zeros or is weighed against
    // them.
    const double scale = 6 / std::sqrt(static_cast<double>(kSize));
    const Numbers query(kBatch * rows * kHeads * kSize, random, 1);
    const Numbers key(kBatch * rows * kKvHeads * kSize, random, 1);
    const Numbers value(kBatch * rows * kKvHeads * kSize, random, 1);
    const Numbers tail_key(kKvHeads * kTail * kSize, random, 1);
    const Numbers tail_value(kKvHeads * kTail * kSize, random, 1);
    const int64_t past = kLength - rows;
    for (int64_t h = 0; h < kKvHeads; ++h) {
      const int64_t at = ((kKvHeads + h) * kLength + past - kTail) * kSize * kBytes;
      const size_t from = static_cast<size_t>(h * kTail * kSize);
      copy(gpu_, keys_.data() + at, tail_key.bits.data() + from, kTail * kSize * kBytes, stream_);
      copy(gpu_, values_.data() + at, tail_value.bits.data() + from, kTail * kSize * kBytes,
           stream_);
    }
    Memory q = put(query.bits), k = put(key.bits), v = put(value.bits);
    Memory output(gpu_, static_cast<int64_t>(query.bits.size()) * kBytes);
    output.fill(0xFF, stream_);
    const std::vector<int32_t> lengths = {static_cast<int32_t>(rows - 1 + kShortPast), kLength - 1};
    Memory seqlens = put(lengths), bound = put(std::vector<int32_t>{kLength});

    test::Arguments inputs, outputs;
    inputs.add(0, describe(gpu_, q.data(), bfloat16(), {kBatch, rows, kHeads * kSize}));
    inputs.add(1, describe(gpu_, k.data(), bfloat16(), {kBatch, rows, kKvHeads * kSize}));
    inputs.add(2, describe(gpu_, v.data(), bfloat16(), {kBatch, rows, kKvHeads * kSize}));
    const attn_tensor keys =
        describe(gpu_, keys_.data(), bfloat16(), {kBatch, kKvHeads, kLength, kSize});
    const attn_tensor values =
        describe(gpu_, values_.data(), bfloat16(), {kBatch, kKvHeads, kLength, kSize});
    inputs.add(3, keys);
    inputs.add(4, values);
    inputs.add(5, describe(gpu_, seqlens.data(), int32(), {kBatch}));
    inputs.add(6, describe(gpu_, bound.data(), int32(), {1}));
    outputs.add(0, describe(gpu_, output.data(), bfloat16(), {kBatch, rows, kHeads * kSize}));
    outputs.add(1, keys);
    outputs.add(2, values);
    const test::Handle<attn_op> op = make_op(gpu_, kHeads, kKvHeads, window, scale);
    const test::Handle<attn_plan> plan = make_plan(op.get(), inputs, outputs, engine);
    execute(plan.get(), session_.get(), inputs, outputs, stream_);
    if (const attn_fault_info info = poll(session_.get()); info.bits != 0) return info.text;

    std::vector<uint16_t> got(query.bits.size());
    if (!output.download(got.data(), stream_)) return "the output's fence was written";
    std::string findings =
        compare(rows, window, scale, query, key, value, tail_key, tail_value, got);
    findings += compare_caches(rows, key, value, tail_key);
    return findings;
  }

 private:
  static constexpr uint64_t kCacheBytes =
      static_cast<uint64_t>(kBatch) * kKvHeads * kLength * kSize * kBytes;
  static_assert(kCacheBytes / kBytes > (uint64_t{1} << 31));

  template <class T>
  Memory put(const std::vector<T>& host) {
    Memory memory(gpu_, static_cast<int64_t>(host.size() * sizeof(T)));
    memory.upload(host.data(), stream_);
    return memory;
  }

  // Every output: the tail, the new keys up to each row, and zeros.
  static std::string compare(int64_t rows, int64_t window, double scale, const Numbers& query,
                             const Numbers& key, const Numbers& value, const Numbers& tail_key,
                             const Numbers& tail_value, const std::vector<uint16_t>& got) {
    test::ErrorMeter meter(Type::kBfloat16);
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t past = b == 0 ? kShortPast : kLength - rows, tail = b == 0 ? 0 : kTail;
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t first = window < 0 ? 0 : std::max<int64_t>(0, past + i - window + 1);
        for (int64_t head = 0; head < kHeads; ++head) {
          const int64_t h = head / (kHeads / kKvHeads);
          const size_t at = static_cast<size_t>(((b * rows + i) * kHeads + head) * kSize);
          std::vector<double> scores, out;
          std::vector<const double*> values;
          for (int64_t j = 0; j < tail + i + 1; ++j) {
            if (past - tail + j < first) continue;
            const bool is_new = j >= tail;
            const size_t row = static_cast<size_t>(
                is_new ? ((b * rows + j - tail) * kKvHeads + h) * kSize : (h * kTail + j) * kSize);
            const Numbers& from = is_new ? key : tail_key;
            scores.push_back(static_cast<double>(static_cast<float>(scale)) *
                             dot(&query.values[at], &from.values[row], kSize));
            values.push_back(is_new ? &value.values[row] : &tail_value.values[row]);
          }
          const auto zeros = static_cast<double>(std::max<int64_t>(0, past - tail - first));
          std::vector<double> want = mean(scores, values, kSize, zeros);
          for (double& number : want) number = test::round_to(Type::kBfloat16, number);
          for (int64_t d = 0; d < kSize; ++d) {
            out.push_back(test::decode_bfloat16(got[at + static_cast<size_t>(d)]));
          }
          meter.add(out, want, 0.02);
        }
      }
    }
    return meter.passed() ? ""
                          : "relative error " + std::to_string(meter.error()) + ", worst row " +
                                std::to_string(meter.worst_row()) + "; ";
  }

  // The last rows of each head: the tail as it was, then the new rows; the next head begins with
  // zeros.
  std::string compare_caches(int64_t rows, const Numbers& key, const Numbers& value,
                             const Numbers& tail_key) {
    const size_t row_bytes = kSize * kBytes;
    std::vector<uint16_t> found(static_cast<size_t>((rows + 2) * kSize));
    for (const auto& [memory, fresh] : {std::pair{&keys_, &key}, std::pair{&values_, &value}}) {
      for (int64_t h = 0; h < kKvHeads; ++h) {
        const bool last = h == kKvHeads - 1;
        const int64_t at = ((kKvHeads + h) * kLength + kLength - rows - 1) * kSize * kBytes;
        const auto count = static_cast<uint64_t>(rows + (last ? 1 : 2)) * row_bytes;
        copy(gpu_, found.data(), memory->data() + at, count, stream_);
        if (memory == &keys_ &&
            std::memcmp(found.data(),
                        &tail_key.bits[static_cast<size_t>((h * kTail + kTail - 1) * kSize)],
                        row_bytes) != 0) {
          return "the row before the new ones was written, head " + std::to_string(h);
        }
        for (int64_t i = 0; i < rows; ++i) {
          const size_t from = static_cast<size_t>(((rows + i) * kKvHeads + h) * kSize);
          if (std::memcmp(&found[static_cast<size_t>((1 + i) * kSize)], &fresh->bits[from],
                          row_bytes) != 0) {
            return "new row " + std::to_string(i) + " of head " + std::to_string(h) +
                   " is not where it belongs";
          }
        }
        const auto next = found.begin() + (rows + 1) * kSize;
        if (!last && std::any_of(next, next + kSize, [](uint16_t bits) { return bits != 0; })) {
          return "the first row of head " + std::to_string(h + 1) + " was written";
        }
      }
    }
    return {};
  }

  const Gpu& gpu_;
  Stream stream_;
  PlainMemory keys_, values_;
  test::Handle<attn_session> session_;
};

TEST_F(GpuLarge, CachesOfMoreThan2To31Elements) {
  const Gpu& gpu = Gpu::first();
  if (!device_has(gpu, uint64_t{10} << 30)) {
    GTEST_SKIP() << "needs 10 GiB of free device memory";
  }
  FarEnd far_end(gpu);
  EXPECT_EQ(far_end.run(1, -1, nullptr, 71), "") << "a decode step, chosen engine";
  EXPECT_EQ(far_end.run(1, -1, "mma-prefill", 72), "");
  EXPECT_EQ(far_end.run(5, 257, "split-decode", 73), "");
  EXPECT_EQ(far_end.run(1, 257, "generic", 74), "");
  EXPECT_EQ(far_end.run(130, 257, "mma-prefill", 75), "");
  EXPECT_EQ(far_end.run(130, 257, nullptr, 76), "") << "a chunk, chosen engine";
  EXPECT_EQ(far_end.run(130, -1, nullptr, 77), "") << "a chunk over everything, chosen engine";
}

// 131,072 tokens at once, 32 heads of 128. Tokens repeat after 1,021 rows (a prime, so that no tile
// or split meets the same rows twice), which makes a row's reference 1,021 scores with counts.
TEST_F(GpuLarge, PromptOf131072TokensInLittleScratch) {
  constexpr int64_t kTokens = 131072, kPeriod = 1021, kWide = 32, kNarrow = 8;
  const Gpu& gpu = Gpu::first();
  if (!device_has(gpu, uint64_t{5} << 30)) GTEST_SKIP() << "needs 5 GiB of free device memory";
  const Stream stream(gpu);
  test::Random random(81);
  const Numbers query(kPeriod * kWide * kSize, random, 1);
  const Numbers key(kPeriod * kNarrow * kSize, random, 1);
  const Numbers value(kPeriod * kNarrow * kSize, random, 1);
  const auto repeat = [&](const PlainMemory& memory, const Numbers& numbers) {
    const uint64_t period = numbers.bits.size() * kBytes;
    for (uint64_t at = 0; at < memory.size(); at += period) {
      copy(gpu, memory.data() + at, numbers.bits.data(), std::min(period, memory.size() - at),
           stream);
    }
  };
  const PlainMemory q(gpu, uint64_t{kTokens} * kWide * kSize * kBytes);
  const PlainMemory k(gpu, uint64_t{kTokens} * kNarrow * kSize * kBytes), v(gpu, k.size());
  const PlainMemory present_k(gpu, k.size()), present_v(gpu, k.size()), output(gpu, q.size());
  repeat(q, query);
  repeat(k, key);
  repeat(v, value);
  Memory seqlens(gpu, 4), bound(gpu, 4);
  const int32_t length = kTokens - 1, total = kTokens;
  seqlens.upload(&length, stream);
  bound.upload(&total, stream);
  test::Arguments inputs, outputs;
  inputs.add(0, describe(gpu, q.data(), bfloat16(), {1, kTokens, kWide * kSize}));
  inputs.add(1, describe(gpu, k.data(), bfloat16(), {1, kTokens, kNarrow * kSize}));
  inputs.add(2, describe(gpu, v.data(), bfloat16(), {1, kTokens, kNarrow * kSize}));
  inputs.add(5, describe(gpu, seqlens.data(), int32(), {1}));
  inputs.add(6, describe(gpu, bound.data(), int32(), {1}));
  outputs.add(0, describe(gpu, output.data(), bfloat16(), {1, kTokens, kWide * kSize}));
  outputs.add(1, describe(gpu, present_k.data(), bfloat16(), {1, kNarrow, kTokens, kSize}));
  outputs.add(2, describe(gpu, present_v.data(), bfloat16(), {1, kNarrow, kTokens, kSize}));
  const double scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kSize)));
  const test::Handle<attn_op> op = make_op(gpu, kWide, kNarrow, -1, scale);
  const test::Handle<attn_session> session = make_session(gpu);
  for (const char* engine : {static_cast<const char*>(nullptr), "mma-prefill"}) {
    zero(gpu, output);
    const test::Handle<attn_plan> plan = make_plan(op.get(), inputs, outputs, engine);
    attn_plan_info info = ATTN_PLAN_INFO_INIT;
    must("plan_get_info",
         [&](attn_error* error) { return attn_plan_get_info(plan.get(), &info, error); });
    EXPECT_LE(info.workspace_bytes, uint64_t{64} << 20);
    std::cout << (engine ? engine : "chosen engine") << ": workspace " << info.workspace_bytes
              << " bytes\n";
    execute(plan.get(), session.get(), inputs, outputs, stream);
    ASSERT_EQ(poll(session.get()).bits, 0u);

    test::ErrorMeter meter(Type::kBfloat16);
    std::vector<uint16_t> row(kWide * kSize);
    for (int sample = 0; sample < 60; ++sample) {
      const int64_t i = sample == 0   ? 0
                        : sample == 1 ? kTokens - 1
                                      : random.below(sample % 2 ? kTokens : 3000);
      copy(gpu, row.data(), output.data() + i * kWide * kSize * kBytes, row.size() * kBytes,
           stream);
      const int64_t head = random.below(kWide), h = head / (kWide / kNarrow);
      std::vector<double> scores, out;
      std::vector<const double*> values;
      for (int64_t j = 0; j < std::min(kPeriod, i + 1); ++j) {
        const size_t from = static_cast<size_t>((j * kNarrow + h) * kSize);
        const size_t at = static_cast<size_t>(((i % kPeriod) * kWide + head) * kSize);
        const auto times = static_cast<double>((i - j) / kPeriod + 1);
        scores.push_back(scale * dot(&query.values[at], &key.values[from], kSize) +
                         std::log(times));
        values.push_back(&value.values[from]);
      }
      std::vector<double> want = mean(scores, values, kSize, 0);
      for (double& number : want) number = test::round_to(Type::kBfloat16, number);
      for (int64_t d = 0; d < kSize; ++d) {
        out.push_back(test::decode_bfloat16(row[static_cast<size_t>(head * kSize + d)]));
      }
      EXPECT_TRUE(meter.add(out, want)) << "row " << i << ", head " << head;
    }
    EXPECT_TRUE(meter.passed()) << "relative error " << meter.error();
  }
}

}  // namespace
}  // namespace attn::gpu
