// Where the host has no memory a call says so: each allocation of each call fails in turn, alone
// and with all that follow. Nothing aborts, nothing is written and nothing stays behind.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "attn_c.h"
#include "support/count_allocations.h"

namespace {

constexpr int64_t kHeads = 4, kKeyHeads = 2, kHeadSize = 16, kRows = 8, kCapacity = 64;
constexpr float kUntouched = -77;
constexpr long kMostAllocations = 2000;  // of one call: more is a loop that never ends

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::printf("failed: %s\n", what.c_str());
  ++failures;
}

attn_tensor tensor(uint8_t code, std::initializer_list<int64_t> shape, void* data) {
  attn_tensor made = ATTN_TENSOR_INIT;
  made.device_type = ATTN_DEVICE_CPU;
  made.dtype = {code, 32, 1};
  made.data = data;
  for (const int64_t size : shape) made.shape[made.ndim++] = size;
  int64_t stride = 1;
  for (int32_t axis = made.ndim; axis-- > 0;) {
    made.strides[axis] = stride;
    stride *= made.shape[axis];
  }
  return made;
}

// The call that is made short of memory, and which of its allocations fail.
struct Shortage {
  std::string call;
  long number;
  bool all;
  bool met = false;  // the call had such an allocation
};

// A prompt of GroupQueryAttention from context to release, one call of which is short of memory.
class Prompt {
 public:
  explicit Prompt(Shortage& shortage) : shortage_(shortage) {
    std::fill(std::begin(output_), std::end(output_), kUntouched);
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;
  ~Prompt() {
    attn_binding_release(binding_);
    attn_plan_release(plan_);
    attn_session_release(session_);
    attn_op_release(op_);
    if (context_ != nullptr) expect_nothing_left();
    attn_context_release(context_);
  }

  void run() {
    attn_context_desc context = ATTN_CONTEXT_DESC_INIT;
    context.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
    context.thread_count = 2;
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.minimum_severity = ATTN_LOG_DEBUG;
    logger.log = [](void*, int32_t, const char*) {};
    context.logger = &logger;
    if (!go("context", [&](auto* e) { return attn_context_create(&context, &context_, e); }))
      return;

    attn_attribute attributes[2] = {};
    attributes[0].name = "num_heads";
    attributes[0].i = kHeads;
    attributes[1].name = "kv_num_heads";
    attributes[1].i = kKeyHeads;
    attributes[0].type = attributes[1].type = ATTN_ATTRIBUTE_INT;
    attn_op_desc op = ATTN_OP_DESC_INIT;
    op.domain = "com.microsoft";
    op.type = "GroupQueryAttention";
    op.label = "a label that is too long for the small buffer of a string";
    op.version = 1;
    op.attributes = attributes;
    op.attribute_count = 2;
    if (!go("op", [&](auto* e) { return attn_op_create(context_, &op, &op_, e); })) return;
    attn_session_desc session = ATTN_SESSION_DESC_INIT;
    session.label = op.label;
    if (!go("session",
            [&](auto* e) { return attn_session_create(context_, &session, &session_, e); })) {
      return;
    }
    plan_and_execute();
    ask();
  }

 private:
  void plan_and_execute() {
    attn_query_desc query = ATTN_QUERY_DESC_INIT;
    query.inputs = inputs_;
    query.input_count = 7;
    query.outputs = outputs_;
    query.output_count = 3;
    attn_support support = ATTN_SUPPORT_INIT;
    go("query", [&](auto* e) { return attn_op_query(op_, &query, &support, e); });
    attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
    prepare.inputs = inputs_;
    prepare.input_count = 7;
    prepare.outputs = outputs_;
    prepare.output_count = 3;
    if (!go("prepare", [&](auto* e) { return attn_op_prepare(op_, &prepare, &plan_, e); })) return;
    char text[100];
    size_t needed = 0;
    go("describe",
       [&](auto* e) { return attn_plan_describe(plan_, text, sizeof text, &needed, e); });
    const bool ran = go("execute", [&](auto* e) {
      return attn_plan_execute(plan_, session_, inputs_, 7, outputs_, 3, nullptr, e);
    });
    if (!ran) expect(output_[0] == kUntouched, "execute wrote before it failed");
    if (!go("binding", [&](auto* e) { return attn_binding_create(op_, session_, &binding_, e); })) {
      return;
    }
    go("set_tensors",
       [&](auto* e) { return attn_binding_set_tensors(binding_, inputs_, 7, outputs_, 3, e); });
    go("binding_prepare", [&](auto* e) { return attn_binding_prepare(binding_, nullptr, e); });
  }

  // What a host asks besides. What is refused in words needs memory for the words.
  void ask() {
    char text[100];
    size_t needed = 0;
    go("fault_text", [&](auto* e) { return attn_fault_text(~0u, text, sizeof text, &needed, e); });
    attn_op_desc unknown = ATTN_OP_DESC_INIT;
    unknown.type = "an operator that nobody has ever heard of, with a long name";
    unknown.version = 1;
    attn_op* none = nullptr;
    go(
        "unknown operator", [&](auto* e) { return attn_op_create(context_, &unknown, &none, e); },
        ATTN_UNSUPPORTED);
    go("trim", [&](auto* e) { return attn_context_trim(context_, e); });
  }

  // Whether the call succeeded; short of memory it may say OUT_OF_MEMORY, else it says `usual`.
  bool go(const std::string& call, const std::function<attn_status(attn_error*)>& body,
          attn_status usual = ATTN_OK) {
    attn_error error = ATTN_ERROR_INIT;
    const bool is_short = call == shortage_.call;
    if (is_short) attn::test::begin_failing_allocations(shortage_.number, shortage_.all);
    const attn_status status = body(&error);
    if (is_short) shortage_.met = attn::test::end_failing_allocations() >= shortage_.number;
    expect(status == usual || (is_short && status == ATTN_OUT_OF_MEMORY),
           call + " returned " + std::to_string(status) + ": " + error.message);
    if (status == ATTN_OUT_OF_MEMORY) expect(error.message[0] != '\0', call + " said nothing");
    return status == ATTN_OK;
  }

  void expect_nothing_left() {
    expect(attn_context_trim(context_, nullptr) == ATTN_OK, "the last trim");
    attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
    attn_context_get_stats(context_, &stats, nullptr);
    expect(stats.ops_live + stats.plans_live + stats.sessions_live + stats.bindings_live +
                   stats.scratch_bytes ==
               0,
           "something stayed behind after " + shortage_.call);
  }

  Shortage& shortage_;
  attn_context* context_ = nullptr;
  attn_op* op_ = nullptr;
  attn_session* session_ = nullptr;
  attn_plan* plan_ = nullptr;
  attn_binding* binding_ = nullptr;

  float query_[kRows * kHeads * kHeadSize] = {};
  float rows_[2][kRows * kKeyHeads * kHeadSize] = {};
  float caches_[2][kKeyHeads * kCapacity * kHeadSize] = {};
  float output_[kRows * kHeads * kHeadSize];
  int32_t last_ = kRows - 1, total_ = kRows;
  attn_tensor q_ = tensor(ATTN_DTYPE_FLOAT, {1, kRows, kHeads * kHeadSize}, query_);
  attn_tensor k_ = tensor(ATTN_DTYPE_FLOAT, {1, kRows, kKeyHeads * kHeadSize}, rows_[0]);
  attn_tensor v_ = tensor(ATTN_DTYPE_FLOAT, {1, kRows, kKeyHeads * kHeadSize}, rows_[1]);
  attn_tensor k_cache_ = tensor(ATTN_DTYPE_FLOAT, {1, kKeyHeads, kCapacity, kHeadSize}, caches_[0]);
  attn_tensor v_cache_ = tensor(ATTN_DTYPE_FLOAT, {1, kKeyHeads, kCapacity, kHeadSize}, caches_[1]);
  attn_tensor seqlens_ = tensor(ATTN_DTYPE_INT, {1}, &last_);
  attn_tensor bound_ = tensor(ATTN_DTYPE_INT, {}, &total_);
  attn_tensor y_ = tensor(ATTN_DTYPE_FLOAT, {1, kRows, kHeads * kHeadSize}, output_);
  const attn_arg inputs_[7] = {{0, 0, &q_},       {1, 0, &k_},       {2, 0, &v_},
                               {3, 0, &k_cache_}, {4, 0, &v_cache_}, {5, 0, &seqlens_},
                               {6, 0, &bound_}};
  const attn_arg outputs_[3] = {{0, 0, &y_}, {1, 0, &k_cache_}, {2, 0, &v_cache_}};
};

}  // namespace

int main() {
  for (const char* call :
       {"context", "op", "session", "query", "prepare", "describe", "execute", "binding",
        "set_tensors", "binding_prepare", "fault_text", "unknown operator", "trim"}) {
    for (const bool all : {false, true}) {
      long number = 1;
      for (;; ++number) {
        Shortage shortage{call, number, all};
        Prompt(shortage).run();
        if (!shortage.met || number > kMostAllocations) break;
      }
      expect(number <= kMostAllocations, std::string(call) + " allocates without an end");
      if (!all) std::printf("%s: %ld allocations\n", call, number - 1);
    }
  }
  return failures == 0 ? 0 : 1;
}
