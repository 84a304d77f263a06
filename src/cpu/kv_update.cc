#include "cpu/kv_update.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cpu/item_queue.h"
#include "cpu/row_transform.h"
#include "cpu/row_transform_simd.h"

namespace attn::cpu {
namespace {

constexpr size_t kCacheLine = 64;
// Bytes of present rows in one work item.
constexpr int64_t kItemBytes = 64 << 10;

// One of the two caches with what its rows have in common.
struct Cache {
  const CacheUpdateSpec* spec = nullptr;
  const CacheUpdate* update = nullptr;
  DType type{};
  int32_t channels = 0;
  int64_t rows = 0;        // that may have to be written, of one head
  int64_t item_rows = 1;   // rows of a work item
  int64_t items = 0;       // work items of the cache
  int64_t head_items = 0;  // of one head
};

char* element(const View4& view, int64_t size, int64_t batch, int64_t head, int64_t row) {
  return static_cast<char*>(view.data) +
         (batch * view.batch + head * view.head + row * view.row) * size;
}

// Zeroes rows [begin, end) of one head; one call where they lie side by side.
void zero_rows(const Cache& cache, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const View4& present = cache.update->present;
  const int64_t size = size_of(cache.type);
  if (present.channel == 1 && present.row == cache.channels) {
    std::memset(element(present, size, batch, head, begin), 0,
                static_cast<size_t>((end - begin) * cache.channels * size));
    return;
  }
  for (int64_t row = begin; row < end; ++row) {
    char* to = element(present, size, batch, head, row);
    if (present.channel == 1) {
      std::memset(to, 0, static_cast<size_t>(cache.channels * size));
      continue;
    }
    for (int32_t c = 0; c < cache.channels; ++c) {
      std::memset(to + c * present.channel * size, 0, static_cast<size_t>(size));
    }
  }
}

void copy_past_rows(const Cache& cache, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const View4& past = cache.update->past;
  const View4& present = cache.update->present;
  const int64_t size = size_of(cache.type);
  if (past.channel == 1 && present.channel == 1 && past.row == cache.channels &&
      present.row == cache.channels) {
    std::memcpy(element(present, size, batch, head, begin), element(past, size, batch, head, begin),
                static_cast<size_t>((end - begin) * cache.channels * size));
    return;
  }
  for (int64_t row = begin; row < end; ++row) {
    copy_row(cache.type, element(past, size, batch, head, row), past.channel, cache.channels,
             element(present, size, batch, head, row), present.channel);
  }
}

// Writes present rows [begin, end) from new rows that are transformed and whose channels lie side
// by side, many in one call.
void append_transformed(const Cache& cache, const RowKernels& kernels, int64_t batch, int64_t head,
                        int64_t past, int64_t begin, int64_t end) {
  constexpr int kRows = 32;
  const void* source[kRows];
  int64_t position[kRows];
  const RowTransformSpec& spec = cache.spec->transform;
  const RowTransform& transform = cache.update->transform;
  const View4& present = cache.update->present;
  const int64_t size = size_of(cache.type);
  for (int64_t first = begin; first < end; first += kRows) {
    RowBatch rows{cache.type, cache.channels, 0, source, position};
    for (int64_t row = first; row < std::min(first + kRows, end); ++row, ++rows.count) {
      source[rows.count] = element(cache.update->source, size, batch, head, row - past);
      position[rows.count] =
          spec.rotary ? row_position(spec, transform, batch, row - past, row) : -1;
    }
    kernels.to_rows(rows, spec, transform, element(present, size, batch, head, first), present.row);
  }
}

// Writes present rows [begin, end) from the new rows; `scratch` holds the channels of one row.
void append_rows(const Cache& cache, const RowKernels* kernels, int64_t batch, int64_t head,
                 int64_t past, int64_t begin, int64_t end, float* scratch) {
  const View4& source = cache.update->source;
  const View4& present = cache.update->present;
  const RowTransformSpec& transform = cache.spec->transform;
  const int64_t size = size_of(cache.type);
  if (transform.any() && kernels != nullptr && source.channel == 1 && present.channel == 1 &&
      transform.unit_strides) {
    append_transformed(cache, *kernels, batch, head, past, begin, end);
    return;
  }
  for (int64_t row = begin; row < end; ++row) {
    const int64_t i = row - past;
    const char* from = element(source, size, batch, head, i);
    char* to = element(present, size, batch, head, row);
    if (!transform.any()) {
      copy_row(cache.type, from, source.channel, cache.channels, to, present.channel);
    } else if (cache.type == kFloat32 && present.channel == 1) {
      transform_row(kernels, transform, cache.update->transform, cache.type, from, source.channel,
                    cache.channels, batch, i, row, reinterpret_cast<float*>(to));
    } else {
      transform_row(kernels, transform, cache.update->transform, cache.type, from, source.channel,
                    cache.channels, batch, i, row, scratch);
      store_row(kernels, cache.type, scratch, cache.channels, to, present.channel);
    }
  }
}

// Brings present rows [begin, end) of one head up to date, each by the rule for where it lies.
void update_rows(const Cache& cache, const RowKernels* kernels, const RowLengths& lengths,
                 int64_t batch, int64_t head, int64_t begin, int64_t end, float* scratch) {
  const bool in_place = cache.spec->in_place;
  if (!lengths.live) {
    if (!in_place) zero_rows(cache, batch, head, begin, end);
    return;
  }
  const int64_t append_end = lengths.past + lengths.appended;
  append_rows(cache, kernels, batch, head, lengths.past, std::max(begin, lengths.past),
              std::min(end, append_end), scratch);
  if (in_place) return;
  // Rows of a past that no buffer holds (a length rule would have refused them) become zeros.
  const int64_t held =
      cache.spec->has_past ? std::min(lengths.past, cache.update->past.rows) : int64_t{0};
  copy_past_rows(cache, batch, head, begin, std::min(end, held));
  zero_rows(cache, batch, head, std::max(begin, held), std::min(end, lengths.past));
  zero_rows(cache, batch, head, std::max(begin, append_end), end);
}

struct Job : ItemQueue {
  const KvUpdateProblem* problem = nullptr;
  const RowLengths* rows = nullptr;
  const RowKernels* kernels = nullptr;
  Cache caches[2];
  std::byte* scratch = nullptr;
  size_t scratch_stride = 0;
};

// Work item: some rows of one head of one batch row of one cache. In place they count from the row
// where the new ones begin, otherwise from row 0.
void run_item(const Job& job, int64_t item, float* scratch) {
  const Cache& cache = item < job.caches[0].items ? job.caches[0] : job.caches[1];
  if (item >= job.caches[0].items) item -= job.caches[0].items;
  const int64_t part = item % cache.head_items;
  const int64_t head = item / cache.head_items % job.problem->spec.kv_heads;
  const int64_t batch = item / cache.head_items / job.problem->spec.kv_heads;
  const RowLengths& lengths = job.rows[batch];
  const int64_t origin = cache.spec->in_place ? lengths.past : 0;
  const int64_t begin = origin + part * cache.item_rows;
  const int64_t end =
      std::min({begin + cache.item_rows, origin + cache.rows, cache.update->present.rows});
  if (begin < end) update_rows(cache, job.kernels, lengths, batch, head, begin, end, scratch);
}

Cache make_cache(const KvUpdateProblem& problem, bool key) {
  const KvUpdateSpec& spec = problem.spec;
  Cache cache;
  cache.spec = key ? &spec.key : &spec.value;
  cache.update = key ? &problem.key : &problem.value;
  cache.type = spec.type;
  cache.channels = key ? spec.head_size : spec.v_head_size;
  if (!cache.spec->active) return cache;
  cache.rows = cache.spec->in_place ? problem.new_rows : cache.update->present.rows;
  cache.item_rows =
      std::max<int64_t>(1, kItemBytes / std::max<int64_t>(1, cache.channels * size_of(spec.type)));
  cache.head_items = (cache.rows + cache.item_rows - 1) / cache.item_rows;
  cache.items = problem.batch * spec.kv_heads * cache.head_items;
  return cache;
}

int64_t cache_bytes(const KvUpdateProblem& problem, const Cache& cache) {
  return problem.batch * problem.spec.kv_heads * cache.rows * cache.channels * size_of(cache.type);
}

// Floats of one row, a cache line a thread at least.
size_t thread_scratch(const KvUpdateSpec& spec) {
  if (!spec.key.transform.any() && !spec.value.transform.any()) return 0;
  const size_t bytes =
      sizeof(float) * static_cast<size_t>(std::max(spec.head_size, spec.v_head_size));
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// ---- caches that grow where they lie ------------------------------------------------------------

// Old rows of such a cache lie in the way of each other's new places, so they are put aside first:
// (B, Hkv, past rows, channels) without gaps.
size_t aside_bytes(const KvUpdateSpec& spec, const CacheUpdateSpec& cache, int32_t channels,
                   int64_t batch, int64_t rows) {
  if (!cache.active || !cache.grows) return 0;
  // A range may name more than any memory holds: floating point, so that nothing wraps around.
  constexpr double kMost = 1ll << 60;
  const double bytes = static_cast<double>(batch) * spec.kv_heads * static_cast<double>(rows) *
                       channels * static_cast<double>(size_of(spec.type));
  if (bytes >= kMost) return size_t{1} << 60;
  return (static_cast<size_t>(bytes) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

struct AsideJob : ItemQueue {
  Cache cache;
  CacheUpdate update;  // from the past to the memory aside
  const RowLengths* rows = nullptr;
  int64_t heads = 0;
};

void run_aside_item(const AsideJob& job, int64_t item) {
  const RowLengths& lengths = job.rows[item / job.heads];
  const int64_t held = lengths.live ? std::min(lengths.past, job.update.past.rows) : 0;
  copy_past_rows(job.cache, item / job.heads, item % job.heads, 0, held);
}

// Copies the old rows to `memory` and makes `update` read them there.
void put_aside(const KvUpdateProblem& problem, std::span<const RowLengths> rows, std::byte* memory,
               Executor& executor, Cache& cache, CacheUpdate& update) {
  AsideJob job;
  job.cache = cache;
  job.update = *cache.update;
  job.cache.update = &job.update;
  job.rows = rows.data();
  job.heads = problem.spec.kv_heads;
  job.items = problem.batch * job.heads;
  View4& aside = job.update.present;
  aside.data = memory;
  aside.channel = 1;
  aside.row = cache.channels;
  aside.rows = job.update.past.rows;
  aside.head = aside.rows * aside.row;
  aside.batch = job.heads * aside.head;
  const int64_t bytes = job.items * aside.head * size_of(cache.type);
  run_items(executor, bytes, job, [](const AsideJob& shared, int64_t item, int /*slot*/) {
    run_aside_item(shared, item);
  });
  update = *cache.update;
  update.past = aside;
  cache.update = &update;
}

bool refuse(std::string* why_not, std::string reason) {
  if (why_not != nullptr) *why_not = std::move(reason);
  return false;
}

bool is_float_up_to_32(DType type) {
  return type == kFloat32 || type == kFloat16 || type == kBfloat16;
}

class KvUpdate final : public KvUpdateEngine {
 public:
  KvUpdate(const char* name, bool simd) : name_(name), simd_(simd) {}

  const char* name() const override { return name_; }

  bool supports(const KvUpdateSpec& spec, SimdLevel level, std::string* why_not) const override {
    const bool any_transform = spec.key.transform.any() || spec.value.transform.any();
    if (!is_float_up_to_32(spec.type) && (spec.type != kFloat64 || simd_ || any_transform)) {
      return refuse(why_not, cat("no ", any_transform ? "norm or rotary embedding" : "cache",
                                 " of type ", name_of(spec.type)));
    }
    if (!simd_) return true;
    if (row_kernels(level) == nullptr) {
      return refuse(why_not, cat("no SIMD code for the level ", name_of(level)));
    }
    for (const CacheUpdateSpec* cache : {&spec.key, &spec.value}) {
      if (!cache->active) continue;
      if (!cache->unit_channel) return refuse(why_not, "channels do not lie side by side");
      if (!cache->transform.unit_strides) {
        return refuse(why_not, "norm weights or rotary table columns do not lie side by side");
      }
    }
    return true;
  }

  size_t workspace_bytes(const KvUpdateSpec& spec, const ShapeRange& range, int concurrency,
                         SimdLevel /*level*/) const override {
    return static_cast<size_t>(concurrency) * thread_scratch(spec) +
           aside_bytes(spec, spec.key, spec.head_size, range.batch, range.total) +
           aside_bytes(spec, spec.value, spec.v_head_size, range.batch, range.total);
  }

  void run(const KvUpdateProblem& problem, std::span<const RowLengths> rows,
           std::span<std::byte> scratch, Executor& executor, SimdLevel level) const override {
    Job job;
    job.problem = &problem;
    job.rows = rows.data();
    job.kernels = simd_ ? row_kernels(level) : nullptr;
    job.caches[0] = make_cache(problem, true);
    job.caches[1] = make_cache(problem, false);
    job.items = job.caches[0].items + job.caches[1].items;
    job.scratch = scratch.data();
    job.scratch_stride = thread_scratch(problem.spec);
    std::byte* memory =
        scratch.data() + static_cast<size_t>(executor.concurrency()) * job.scratch_stride;
    CacheUpdate moved[2];
    for (int i = 0; i < 2; ++i) {
      Cache& cache = job.caches[i];
      if (!cache.spec->active || !cache.spec->grows) continue;
      put_aside(problem, rows, memory, executor, cache, moved[i]);
      memory += aside_bytes(problem.spec, *cache.spec, cache.channels, problem.batch,
                            cache.update->past.rows);
    }
    const int64_t bytes = cache_bytes(problem, job.caches[0]) + cache_bytes(problem, job.caches[1]);
    run_items(executor, bytes, job, [](const Job& shared, int64_t item, int slot) {
      std::byte* own = shared.scratch + static_cast<size_t>(slot) * shared.scratch_stride;
      run_item(shared, item, reinterpret_cast<float*>(own));
    });
  }

 private:
  const char* const name_;
  const bool simd_;
};

}  // namespace

const KvUpdateEngine& simd_kv_update_engine() {
  static const KvUpdate engine("simd-kv-update", true);
  return engine;
}

const KvUpdateEngine& generic_kv_update_engine() {
  static const KvUpdate engine("generic-kv-update", false);
  return engine;
}

}  // namespace attn::cpu
