#include "cpu/scatter.h"

#include <algorithm>
#include <cstring>

#include "cpu/item_queue.h"

namespace attn::cpu {
namespace {

// Bytes of present rows in one work item.
constexpr int64_t kItemBytes = 64 << 10;

struct Job : ItemQueue {
  const ScatterProblem* problem = nullptr;
  bool blocks = false;
  int64_t inner = 0;      // elements of a row along the innermost axis
  int64_t outer = 0;      // indices of all other axes together
  int64_t rows = 0;       // to be written: the new ones in place, otherwise the whole cache
  int64_t item_rows = 1;  // of a work item
  int64_t row_items = 0;
};

// Row 0 of one batch row and one index of the outer axes.
char* base(const ScatterProblem& problem, const ScatterView& view, int64_t batch, int64_t outer) {
  int64_t offset = batch * view.batch;
  for (int i = problem.axes - 2; i >= 0; --i) {
    const size_t axis = static_cast<size_t>(i);
    offset += outer % problem.sizes[axis] * view.axes[axis];
    outer /= problem.sizes[axis];
  }
  return static_cast<char*>(view.data) + offset * size_of(problem.spec.type);
}

template <class T>
void copy_elements(const char* src, int64_t src_row, int64_t src_step, char* dst, int64_t dst_row,
                   int64_t dst_step, int64_t rows, int64_t count) {
  const auto* from = reinterpret_cast<const T*>(src);
  auto* to = reinterpret_cast<T*>(dst);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < count; ++i) {
      to[row * dst_row + i * dst_step] = from[row * src_row + i * src_step];
    }
  }
}

// Copies `rows` rows of the innermost axis from one view into the present one.
void copy_rows(const Job& job, const ScatterView& from, const char* src, char* dst_base,
               int64_t dst_first, int64_t rows) {
  const ScatterProblem& problem = *job.problem;
  const ScatterView& to = problem.present;
  const size_t inner_axis = static_cast<size_t>(problem.axes) - 1;
  const int64_t size = size_of(problem.spec.type);
  char* dst = dst_base + dst_first * to.row * size;
  if (job.blocks) {
    const size_t bytes = static_cast<size_t>(job.inner * size);
    if (from.row == job.inner && to.row == job.inner) {
      std::memcpy(dst, src, bytes * static_cast<size_t>(rows));
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(dst + row * to.row * size, src + row * from.row * size, bytes);
    }
    return;
  }
  const int64_t from_step = from.axes[inner_axis];
  const int64_t to_step = to.axes[inner_axis];
  switch (size) {
    case 1:
      return copy_elements<uint8_t>(src, from.row, from_step, dst, to.row, to_step, rows,
                                    job.inner);
    case 2:
      return copy_elements<uint16_t>(src, from.row, from_step, dst, to.row, to_step, rows,
                                     job.inner);
    case 4:
      return copy_elements<uint32_t>(src, from.row, from_step, dst, to.row, to_step, rows,
                                     job.inner);
    default:
      return copy_elements<uint64_t>(src, from.row, from_step, dst, to.row, to_step, rows,
                                     job.inner);
  }
}

// New rows [begin, end): in a circular cache they may go on at row 0.
void append(const Job& job, int64_t batch, int64_t outer, int64_t begin, int64_t end) {
  const ScatterProblem& problem = *job.problem;
  const int64_t size = size_of(problem.spec.type);
  const char* src = base(problem, problem.update, batch, outer);
  char* dst = base(problem, problem.present, batch, outer);
  const int64_t start = first_row(problem, batch);
  while (begin < end) {
    int64_t row = start + begin;
    if (row >= problem.cache_rows) row -= problem.cache_rows;
    const int64_t rows = std::min(end - begin, problem.cache_rows - row);
    copy_rows(job, problem.update, src + begin * problem.update.row * size, dst, row, rows);
    begin += rows;
  }
}

// Present rows [begin, end), each from the update or from the past.
void rewrite(const Job& job, int64_t batch, int64_t outer, int64_t begin, int64_t end) {
  const ScatterProblem& problem = *job.problem;
  const int64_t size = size_of(problem.spec.type);
  const char* update = base(problem, problem.update, batch, outer);
  const char* past = base(problem, problem.past, batch, outer);
  char* dst = base(problem, problem.present, batch, outer);
  const int64_t start = first_row(problem, batch);
  while (begin < end) {
    // The number that the row would have among the new ones.
    const int64_t number = begin >= start ? begin - start : begin - start + problem.cache_rows;
    if (number < problem.new_rows) {
      const int64_t rows = std::min(end - begin, problem.new_rows - number);
      copy_rows(job, problem.update, update + number * problem.update.row * size, dst, begin, rows);
      begin += rows;
    } else {
      const int64_t next = begin < start ? start : problem.cache_rows;  // where that may change
      const int64_t rows = std::min(end, next) - begin;
      copy_rows(job, problem.past, past + begin * problem.past.row * size, dst, begin, rows);
      begin += rows;
    }
  }
}

void run_item(const Job& job, int64_t item) {
  const int64_t begin = item % job.row_items * job.item_rows;
  const int64_t outer = item / job.row_items % job.outer;
  const int64_t batch = item / job.row_items / job.outer;
  const int64_t end = std::min(begin + job.item_rows, job.rows);
  if (job.problem->spec.in_place) {
    append(job, batch, outer, begin, end);
  } else {
    rewrite(job, batch, outer, begin, end);
  }
}

class Scatter final : public ScatterEngine {
 public:
  Scatter(const char* name, bool blocks) : name_(name), blocks_(blocks) {}

  const char* name() const override { return name_; }

  bool supports(const ScatterSpec& spec, SimdLevel /*level*/, std::string* why_not) const override {
    if (!blocks_ || spec.unit_inner) return true;
    if (why_not != nullptr) *why_not = "elements of the innermost axis do not lie side by side";
    return false;
  }

  void run(const ScatterProblem& problem, Executor& executor) const override {
    Job job;
    job.problem = &problem;
    job.blocks = blocks_;
    const size_t inner_axis = static_cast<size_t>(problem.axes) - 1;
    job.inner = problem.sizes[inner_axis];
    job.outer = 1;
    for (size_t axis = 0; axis < inner_axis; ++axis) job.outer *= problem.sizes[axis];
    job.rows = problem.spec.in_place ? problem.new_rows : problem.cache_rows;
    const int64_t row_bytes = job.inner * size_of(problem.spec.type);
    job.item_rows = std::max<int64_t>(1, kItemBytes / std::max<int64_t>(1, row_bytes));
    job.row_items = (job.rows + job.item_rows - 1) / job.item_rows;
    job.items = job.inner == 0 ? 0 : problem.batch * job.outer * job.row_items;
    if (job.items == 0) return;
    const int64_t bytes = problem.batch * job.outer * job.rows * row_bytes;
    run_items(executor, bytes, job,
              [](const Job& shared, int64_t item, int /*slot*/) { run_item(shared, item); });
  }

 private:
  const char* const name_;
  const bool blocks_;
};

}  // namespace

const ScatterEngine& block_scatter_engine() {
  static const Scatter engine("block-scatter", true);
  return engine;
}

const ScatterEngine& generic_scatter_engine() {
  static const Scatter engine("generic-scatter", false);
  return engine;
}

}  // namespace attn::cpu
