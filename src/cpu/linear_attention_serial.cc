// "recurrent-serial": linear attention in plain C++, for any strides, types and sizes. The state is
// float32 between tokens; what one token does to it is computed in double.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "cpu/linear_attention.h"
#include "cpu/linear_attention_gates.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

constexpr int kColumns = 64;  // of the state that one item carries through all tokens
constexpr double kParallelWork = 32768;

struct Scratch {
  float* state;                // (dk, kColumns)
  double *key, *query, *keep;  // (dk); keep is exp(decay)
};

size_t lay_out(const LinearAttentionSpec& spec, std::byte* base, Scratch* scratch) {
  ScratchCursor cursor(base);
  Scratch s;
  s.state = cursor.take<float>(static_cast<int64_t>(spec.head_size) * kColumns);
  s.key = cursor.take<double>(spec.head_size);
  s.query = cursor.take<double>(spec.head_size);
  s.keep = cursor.take<double>(spec.head_size);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

struct Job {
  const LinearAttentionProblem* problem;
  std::byte* scratch;
  size_t stride;
  int64_t blocks, items;
  std::atomic<int64_t> next{0};
};

// One block of columns of one state.
class Item {
 public:
  Item(const LinearAttentionProblem& problem, const Scratch& scratch, int64_t b, int64_t head,
       int64_t block)
      : p_(problem),
        spec_(p_.spec),
        s_(scratch),
        b_(b),
        head_(head),
        first_(block * kColumns),
        columns_(static_cast<int>(std::min<int64_t>(kColumns, spec_.v_head_size - first_))) {}

  void run() {
    load();
    for (int64_t token = 0; token < p_.tokens; ++token) step(token);
    store();
  }

 private:
  float* row(int i) const { return s_.state + static_cast<int64_t>(i) * kColumns; }

  void load() {
    for (int i = 0; i < spec_.head_size; ++i) {
      for (int c = 0; c < columns_; ++c) {
        row(i)[c] = spec_.has_past
                        ? load_float(p_.past.data, element_of(p_.past, b_, head_, i, first_ + c),
                                     spec_.state_type)
                        : 0.0f;
      }
    }
  }

  void store() {
    if (!spec_.has_present) return;
    for (int i = 0; i < spec_.head_size; ++i) {
      for (int c = 0; c < columns_; ++c) {
        store_float(p_.present.data, element_of(p_.present, b_, head_, i, first_ + c),
                    spec_.state_type, row(i)[c]);
      }
    }
  }

  void load_row(const View4& view, int64_t head, int64_t token, double* to) const {
    for (int i = 0; i < spec_.head_size; ++i) {
      to[i] = load_float(view.data, element_of(view, b_, head, token, i), spec_.type);
    }
  }

  void load_decay(int64_t token) {
    const bool keyed = spec_.decay == DecayForm::kPerKey;
    for (int i = 0; i < spec_.head_size; ++i) {
      if (i > 0 && !keyed) {
        s_.keep[i] = s_.keep[0];
      } else {
        s_.keep[i] = spec_.decay == DecayForm::kNone
                         ? 1.0
                         : std::exp(static_cast<double>(decay_at(p_, b_, head_, token, i)));
      }
    }
  }

  void step(int64_t token) {
    load_row(p_.key, key_head_of_state(spec_, head_), token, s_.key);
    load_decay(token);
    double change[kColumns];
    for (int c = 0; c < columns_; ++c) {
      change[c] =
          load_float(p_.value.data, element_of(p_.value, b_, head_, token, first_ + c), spec_.type);
    }
    if (spec_.delta) {
      double held[kColumns] = {};
      for (int i = 0; i < spec_.head_size; ++i) {
        const double factor = s_.keep[i];
        for (int c = 0; c < columns_; ++c) held[c] += s_.key[i] * (factor * row(i)[c]);
      }
      const double beta = beta_at(p_, b_, head_, token);
      for (int c = 0; c < columns_; ++c) change[c] = beta * (change[c] - held[c]);
    }
    for (int i = 0; i < spec_.head_size; ++i) {
      for (int c = 0; c < columns_; ++c) {
        row(i)[c] = static_cast<float>(s_.keep[i] * row(i)[c] + s_.key[i] * change[c]);
      }
    }
    for (int64_t j = 0; j < outputs_of_state(spec_); ++j) {
      write(token, head_ * outputs_of_state(spec_) + j);
    }
  }

  void write(int64_t token, int64_t output_head) {
    load_row(p_.query, query_head_of_output(spec_, output_head), token, s_.query);
    double sum[kColumns] = {};
    for (int i = 0; i < spec_.head_size; ++i) {
      for (int c = 0; c < columns_; ++c) sum[c] += s_.query[i] * row(i)[c];
    }
    for (int c = 0; c < columns_; ++c) {
      store_float(p_.output.data, element_of(p_.output, b_, output_head, token, first_ + c),
                  spec_.type, static_cast<float>(spec_.scale * sum[c]));
    }
  }

  const LinearAttentionProblem& p_;
  const LinearAttentionSpec& spec_;
  const Scratch& s_;
  const int64_t b_, head_, first_;
  const int columns_;
};

void work(Job& job, int slot) {
  const LinearAttentionProblem& problem = *job.problem;
  Scratch scratch;
  lay_out(problem.spec, job.scratch + static_cast<size_t>(slot) * job.stride, &scratch);
  for (;;) {
    const int64_t at = job.next.fetch_add(1, std::memory_order_relaxed);
    if (at >= job.items) return;
    const int64_t state = at / job.blocks;
    Item(problem, scratch, state / problem.spec.kv_heads, state % problem.spec.kv_heads,
         at % job.blocks)
        .run();
  }
}

class RecurrentSerial final : public LinearAttentionEngine {
 public:
  const char* name() const override { return "recurrent-serial"; }

  bool supports(const LinearAttentionSpec&, SimdLevel, std::string*) const override { return true; }

  bool prefers(const LinearAttentionSpec&, int64_t, SimdLevel) const override { return true; }

  size_t workspace_bytes(const LinearAttentionSpec& spec, int concurrency,
                         SimdLevel) const override {
    return lay_out(spec, nullptr, nullptr) * static_cast<size_t>(concurrency);
  }

  void run(const LinearAttentionProblem& problem, std::span<std::byte> scratch, Executor& executor,
           SimdLevel) const override {
    const LinearAttentionSpec& spec = problem.spec;
    Job job;
    job.problem = &problem;
    job.scratch = scratch.data();
    job.stride = lay_out(spec, nullptr, nullptr);
    job.blocks = ceil_div(spec.v_head_size, kColumns);
    job.items = problem.batch * spec.kv_heads * job.blocks;
    const double elements = static_cast<double>(spec.head_size) * spec.v_head_size;
    const double steps = static_cast<double>(problem.tokens + 1) * spec.kv_heads;
    const bool small = static_cast<double>(problem.batch) * steps * elements < kParallelWork;
    run_workers(executor, small ? 1 : executor.concurrency(), job.items, job, work);
  }
};

}  // namespace

const LinearAttentionEngine& recurrent_serial_engine() {
  static const RecurrentSerial engine;
  return engine;
}

}  // namespace attn::cpu
