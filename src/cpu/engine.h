// What an engine of the CPU back end offers, and what it gets to run on.
//
// A plan keeps the ordered list of the engines that support its spec. At run time the first one
// that accepts the shapes runs, so a plan's workspace is the largest of its engines' workspaces.
// Engines are stateless: one instance serves all threads.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/backend.h"
#include "core/problem.h"
#include "cpu/simd_level.h"

namespace attn::cpu {

// Runs tasks on some threads, the caller's among them.
struct Executor {
  virtual ~Executor() = default;

  // Threads that may work at once, the calling one included; at least 1, constant for a context.
  virtual int concurrency() const = 0;

  // Calls fn(ctx, t) once for each t in [0, tasks) and returns when all calls have returned. Tasks
  // may run in any order, at once or one after the other; fn does not throw. Engines make results
  // independent of the number of threads; who needs scratch a thread launches at most
  // concurrency() tasks that pull work items from an atomic counter: the task is the scratch slot.
  virtual void parallel_for(int tasks, void (*fn)(void* ctx, int task), void* ctx) = 0;
};

// An executor that keeps everything on the calling thread.
struct SerialExecutor final : Executor {
  int concurrency() const override { return 1; }
  void parallel_for(int tasks, void (*fn)(void* ctx, int task), void* ctx) override {
    for (int task = 0; task < tasks; ++task) fn(ctx, task);
  }
};

// Solves AttentionProblem.
class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;

  virtual const char* name() const = 0;

  // Whether the engine runs only where its name is forced: it is there to check another one.
  virtual bool only_forced() const { return false; }

  // Whether every problem with this spec can be run at `level` (dynamic sizes aside). Otherwise
  // false, with one line in `why_not` (which may be null).
  virtual bool supports(const AttentionSpec& spec, SimdLevel level, std::string* why_not) const = 0;

  // Whether this engine takes a supported problem of these shapes (pointers may be null).
  virtual bool accepts(const AttentionProblem& problem) const = 0;

  // Whether it is worth running at these shapes where another engine would do; asked like
  // `accepts`, of accepted problems, and not where the engine's name is forced.
  virtual bool pays(const AttentionProblem&) const { return true; }

  // Scratch that `run` needs for any accepted problem within `range` on an executor of this
  // concurrency or less. Grows with the range and the concurrency.
  virtual size_t workspace_bytes(const AttentionSpec& spec, const ShapeRange& range,
                                 int concurrency, SimdLevel level) const = 0;

  // Runs an accepted problem; rows.size() == problem.batch. `scratch` is 64-byte aligned, at least
  // workspace_bytes long, with any contents. Writes all of the output (and of what else the spec
  // asks for), also for rows that are not live. No allocation, no exception.
  virtual void run(const AttentionProblem& problem, std::span<const RowLengths> rows,
                   std::span<std::byte> scratch, Executor& executor, SimdLevel level) const = 0;
};

// Solves KvUpdateProblem: appends and copies cache rows (the same conventions).
class KvUpdateEngine {
 public:
  virtual ~KvUpdateEngine() = default;
  virtual const char* name() const = 0;
  virtual bool supports(const KvUpdateSpec& spec, SimdLevel level, std::string* why_not) const = 0;
  virtual size_t workspace_bytes(const KvUpdateSpec& spec, const ShapeRange& range, int concurrency,
                                 SimdLevel level) const = 0;
  virtual void run(const KvUpdateProblem& problem, std::span<const RowLengths> rows,
                   std::span<std::byte> scratch, Executor& executor, SimdLevel level) const = 0;
};

// The engines that there are, in no particular order; the back end orders them.
const AttentionEngine& amx_prefill_engine();           // attention_amx.h
const AttentionEngine& emulated_amx_prefill_engine();  // attention_amx.h
const AttentionEngine& simd_prefill_engine();          // attention_prefill.h
const AttentionEngine& simd_decode_engine();           // attention_decode.h
const AttentionEngine& generic_attention_engine();     // attention_generic.h
const KvUpdateEngine& simd_kv_update_engine();         // kv_update.h
const KvUpdateEngine& generic_kv_update_engine();

}  // namespace attn::cpu
