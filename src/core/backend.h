// What a back end offers to the API layer. cpu/ and cuda/ implement it; a back end that is not
// built is a stub file with the same factory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/host_help.h"
#include "core/problem.h"

namespace attn {

struct ShapeRange {  // upper bounds that a plan serves; scratch is stated for them
  int64_t batch = 0;
  int64_t query_rows = 0;
  int64_t total = 0;
};

struct PlanRequest {
  std::string engine;            // forced engine name, empty = choose
  bool batch_invariant = false;  // results of a sequence do not depend on its batch
  bool allow_tf32 = false;
  bool check_on_host = false;
};

// One stage of a plan for `describe`: which engine serves it, which were passed over and why.
struct EngineVerdict {
  std::string engine;
  bool supported = false;
  std::string reason;  // why not; or, for the chosen one, what it will do
};
struct StageReport {
  std::string stage;   // "metadata", "kv_update", "attention"
  std::string engine;  // chosen
  std::vector<EngineVerdict> considered;
  double flops = 0;  // expected, at the range's shapes; formulas in docs/numerics.md
  double bytes = 0;
};

// How one shape class runs. Immutable, shared by threads.
class BackendPlan {
 public:
  virtual ~BackendPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  virtual std::vector<StageReport> report() const = 0;
  virtual bool capturable() const = 0;
  virtual std::string capture_reason() const = 0;
};

// What a session's device raised since the last clear.
struct FaultReport {
  uint32_t bits = 0;   // ATTN_FAULT_...
  uint32_t label = 0;  // Launch::label of the first fault's call
  int64_t batch = 0;   // of the first fault
  int64_t value = 0;   // that broke the rule
};

// Work behind a back end's plans and sessions, since it was opened; what it does not have is 0.
struct BackendCounters {
  uint64_t scratch_allocations = 0;
  uint64_t scratch_bytes = 0;  // held now
  uint64_t kernel_compiles = 0;
  uint64_t disk_cache_hits = 0;
  uint64_t disk_cache_misses = 0;
};

// One order of executions: what must survive between launches, and scratch of the library.
class BackendSession {
 public:
  virtual ~BackendSession() = default;
  virtual FaultReport poll_faults() = 0;
  virtual void clear_faults(void* stream) = 0;
  virtual uint64_t scratch_bytes() const = 0;
  // Lets go of scratch that nothing needs any more; called while no execution uses the session,
  // under a lock: memory of the host's allocator goes back by Backend::reclaim().
  virtual void trim() {}
};

struct Launch {
  void* stream = nullptr;
  void* workspace = nullptr;  // the caller's, or null: the session's
  size_t workspace_bytes = 0;
  uint32_t flags = 0;
  uint32_t label = 0;  // of the op, for its faults
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Whether some engine runs this; the reason otherwise. Sizes of -1 mean any.
  virtual bool supports(const Lowering& call, const PlanRequest& request, std::string* reason) = 0;
  virtual std::shared_ptr<const BackendPlan> plan(const Lowering& call, const ShapeRange& range,
                                                  const PlanRequest& request) = 0;
  virtual std::unique_ptr<BackendSession> create_session() = 0;
  // `call` has the plan's specs and lies in its range. Checks values, then runs; throws Error
  // before the first write.
  virtual void execute(const BackendPlan& plan, const Lowering& call, BackendSession& session,
                       const Launch& launch) = 0;
  virtual std::vector<std::string> engine_names() const = 0;
  // Frees what sessions and graphs have let go of. Called where device and host callbacks may be
  // called: no lock is held.
  virtual void reclaim() {}
  // Whether work on the stream is recorded instead of run.
  virtual bool is_capturing(void* /*stream*/) const { return false; }
  // Memory, streams and graphs of the device; null where they are the host's own (CPU).
  virtual HostHelp* host_help() { return nullptr; }
  virtual BackendCounters counters() const { return {}; }
};

}  // namespace attn
