#include "cuda/softmax_call.h"

#include <algorithm>

#include "core/error.h"
#include "core/packed_lengths.h"
#include "cuda/host_lengths.h"
#include "cuda/launch_params.h"
#include "cuda/row_operators.h"

namespace attn::cuda {
namespace {

// How the rows of a KV update, `rows` of each of `heads` heads (key and value counted apart) of
// each batch row, are cut: into items for the warps, of one row each while that does not give every
// warp of the device something to do, of several where there is more; and items into blocks, which
// are several times more than run at once where there is that much.
void cut_update(int64_t batch, int64_t heads, int64_t rows, int64_t multiprocessors,
                attnk::KvUpdateParams& out) {
  constexpr int64_t kWarps = 8, kMostRowsLog2 = 4, kMostRounds = 32;
  constexpr int64_t kCountable = int64_t{1} << 30;
  const auto items = [&](int64_t log2) {
    return heads * ((rows + (int64_t{1} << log2) - 1) >> log2);
  };
  int64_t log2 = 0;
  while ((int64_t{1} << log2) < rows &&
         (items(log2) > kCountable ||
          (log2 < kMostRowsLog2 && batch * items(log2 + 1) >= kWarps * multiprocessors))) {
    ++log2;
  }
  const int64_t rounds = batch * items(log2) / (kWarps * multiprocessors * 16);
  out.item_rows_log2 = log2;
  out.items_per_chunk = kWarps * std::clamp<int64_t>(rounds, 1, kMostRounds);
  out.chunks = std::max<int64_t>(1, (items(log2) + out.items_per_chunk - 1) / out.items_per_chunk);
}

const AttentionChoice& choose(const CudaPlan& plan, const AttentionProblem& problem) {
  for (const AttentionChoice& choice : plan.attention) {
    if (choice.engine->accepts(problem)) return choice;
  }
  fail_unsupported("the attention engine ", plan.attention.front().engine->name(),
                   " is forced but does not take these shapes, strides or addresses");
}

// Whether the keys before the new ones are where the attention reads them before the KV update
// runs, and a block can resolve its lengths by itself: the update only appends, or there is no
// cache. Explicit positions are checked by the update alone.
bool starts_early(const Lowering& call) {
  const auto stays = [](const CacheUpdateSpec& cache) { return !cache.active || cache.in_place; };
  if (call.attention->spec.packed || call.lengths.spec.rule == LengthRule::kMaskEnd) return false;
  return !call.kv_update || (stays(call.kv_update->spec.key) && stays(call.kv_update->spec.value));
}

int64_t rows_to_visit(const CacheUpdateSpec& spec, const CacheUpdate& update, int64_t new_rows) {
  if (!spec.active) return 0;
  return spec.in_place ? new_rows : update.present.rows;
}

// One call's launches, one after the other on its stream.
class SoftmaxCall {
 public:
  SoftmaxCall(const CudaContext& context, const CudaPlan& plan, const Lowering& call,
              CudaSession& session, const Launch& request, CUdeviceptr scratch)
      : context_(context),
        plan_(plan),
        call_(call),
        session_(session),
        label_(request.label),
        stream_(static_cast<CUstream>(request.stream)),
        scratch_(scratch) {}

  void run() {
    if (call_.attention && call_.attention->query_rows > 0 && call_.batch > 0) {
      choice_ = &choose(plan_, *call_.attention);
      shape_ = choice_->engine->shape(*call_.attention, context_, plan_.batch_invariant);
      check_blocks(shape_.blocks);  // before the update appends
    }
    Lengths lengths = call_.lengths;
    if (plan_.store_lengths != nullptr && call_.batch > 0) {
      const CUdeviceptr stored = scratch_ + rows_bytes(plan_.range.batch);
      store_lengths(context_.driver, *plan_.store_lengths, lengths, stored, stream_);
    }
    attnk::LengthParams resolved{};
    if (is_packed(call_)) {
      launch_packed_lengths(lengths);
    } else {
      resolved = launch_update(lengths);
    }
    if (choice_ != nullptr) {
      launch_attention(resolved);
    } else {
      attnk::FaultState* faults = session_.faults();
      attnk::FaultRecord* record = session_.device_record();
      void* arguments[] = {static_cast<void*>(&faults), static_cast<void*>(&record)};
      launch(*plan_.end_call, 1, arguments);
    }
  }

 private:
  attnk::RowLengths* rows() const { return reinterpret_cast<attnk::RowLengths*>(scratch_); }

  void launch(const LoadedKernel& kernel, int64_t blocks, void** arguments, bool overlap = false) {
    launch_kernel(context_.driver, kernel, blocks, kernel.threads, stream_, arguments, overlap);
  }

  void launch_packed_lengths(const Lengths& lengths) {
    attnk::PackedParams params{};
    fill_packed(lengths, *call_.attention, params);
    params.tile_rows = shape_.tile_rows;
    params.rows = rows();
    params.faults = session_.faults();
    params.record = session_.device_record();
    params.label = label_;
    void* arguments[] = {&params};
    launch(*plan_.lengths, std::max<int64_t>(call_.batch, 1), arguments);
  }

  // Past rows of caches that grow in their own memory go to scratch first, whence they are read.
  void move_past_rows(KvUpdateProblem& kv) {
    CUdeviceptr to = scratch_ + plan_.moved_offset;
    const auto move = [&](const CacheUpdateSpec& spec, CacheUpdate& update, int64_t channels) {
      if (!spec.active || !spec.grows) return;
      to = copy_rows(context_, plan_, {kv.spec.type, kv.batch, kv.spec.kv_heads, channels},
                     update.past, to, session_, stream_);
    };
    move(kv.spec.key, kv.key, kv.spec.head_size);
    move(kv.spec.value, kv.value, kv.spec.v_head_size);
  }

  attnk::LengthParams launch_update(const Lengths& lengths) {
    attnk::KvUpdateParams update{};
    fill_lengths(lengths, update.lengths);
    int64_t visited = 0;
    if (call_.kv_update) {
      KvUpdateProblem kv = *call_.kv_update;
      move_past_rows(kv);
      fill_kv_update(kv, update);
      visited = std::max(rows_to_visit(kv.spec.key, kv.key, kv.new_rows),
                         rows_to_visit(kv.spec.value, kv.value, kv.new_rows));
    }
    update.rows = rows();
    update.faults = session_.faults();
    update.record = session_.device_record();
    update.label = label_;
    update.batch = call_.batch;
    cut_update(call_.batch, 2 * update.kv_heads, visited, context_.multiprocessors, update);
    void* arguments[] = {&update};
    launch(*plan_.lengths, call_.batch * update.chunks, arguments);
    return update.lengths;
  }

  void launch_attention(const attnk::LengthParams& resolved) {
    const AttentionSpec& spec = call_.attention->spec;
    attnk::AttentionParams params{};
    fill_attention(*call_.attention, params);
    if (spec.key_fresh && !spec.key_cached) params.key = params.key_fresh;
    if (spec.value_fresh && !spec.value_cached) params.value = params.value_fresh;
    params.rows = rows();
    params.faults = session_.faults();
    params.record = session_.device_record();
    params.early = starts_early(call_);
    if (params.early != 0) params.lengths = resolved;
    params.partials = reinterpret_cast<float*>(scratch_ + plan_.partials_offset);
    params.counters = session_.counters();
    params.splits = shape_.splits;
    params.last = 1;
    void* arguments[] = {&params};
    launch(*choice_->kernel, shape_.blocks, arguments, context_.overlaps_launches);
  }

  const CudaContext& context_;
  const CudaPlan& plan_;
  const Lowering& call_;
  CudaSession& session_;
  const int64_t label_;
  const CUstream stream_;
  const CUdeviceptr scratch_;
  const AttentionChoice* choice_ = nullptr;
  LaunchShape shape_;
};

}  // namespace

void run_softmax(const CudaContext& context, const CudaPlan& plan, const Lowering& call,
                 CudaSession& session, const Launch& request, CUdeviceptr scratch) {
  SoftmaxCall(context, plan, call, session, request, scratch).run();
}

}  // namespace attn::cuda
