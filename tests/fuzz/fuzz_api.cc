// The C boundary under arbitrary calls: every function in any order, handles null, of the wrong
// kind or forged, structs of every size, arguments that nearly fit together. Memory is what the
// descriptions state, so that the sanitizers see every byte too many. What the library promises is
// checked on the way: failures have a status and a message, successes leave none.
#include <cstdint>

#include "attn_c.h"
#include "attn_c_host.h"
#include "fuzz_call.h"
#include "fuzz_input.h"

extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}

namespace attn::fuzz {
namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

class Session {
 public:
  explicit Session(Input& input) : in_(input) {}

  void run() {
    for (int calls = 0; !in_.empty() && calls < 100; ++calls) step();
  }

 private:
  // ---- the caller's side of a call --------------------------------------------------------------

  attn_error* error() {
    attn_error fresh = ATTN_ERROR_INIT;
    fresh.status = 77;
    error_ = in_.given(fresh);
    return error_;
  }

  void done(attn_status status) {
    require(status >= ATTN_OK && status <= ATTN_INTERNAL);
    require(status != ATTN_INTERNAL);
    if (error_ == nullptr || error_->struct_size < 8 || error_->struct_size > 4096) return;
    require(error_->status == status);
    if (error_->struct_size < sizeof(attn_error)) return;
    require((error_->message[0] != '\0') == (status != ATTN_OK));
  }

  // A handle: mostly of the kind that is asked for.
  template <class T>
  T* handle(const Pool<T>& pool) {
    const uint8_t choice = in_.byte();
    if (choice < 216) return pool.at(choice);
    switch (choice % 8) {
      case 0:
        return nullptr;
      case 1:
        return as<T>(contexts_.at(choice));
      case 2:
        return as<T>(ops_.at(choice));
      case 3:
        return as<T>(sessions_.at(choice));
      case 4:
        return as<T>(plans_.at(choice));
      case 5:
        return as<T>(bindings_.at(choice));
      default:
        break;
    }
    auto* forged = static_cast<uint8_t*>(in_.block(32));
    for (int i = 0; i < 32; ++i) forged[i] = in_.byte();
    return as<T>(forged + (choice % 16 == 7 ? 1 : 0));
  }

  template <class T>
  static T* as(void* other) {
    return static_cast<T*>(other);
  }

  // Where a handle goes; null now and then.
  template <class T>
  T** place(T** target) {
    *target = nullptr;
    return in_.rarely(16) ? nullptr : target;
  }

  struct Text {
    char* buffer;
    size_t capacity;
    size_t* needed;
  };
  Text text_out() {
    const size_t capacity = in_.one_of<size_t>({0, 1, 7, 64, 3000});
    Text text = {static_cast<char*>(in_.block(capacity)), capacity, in_.array<size_t>(1)};
    if (in_.rarely(8)) text.buffer = nullptr;
    if (in_.rarely(8)) text.needed = nullptr;
    return text;
  }

  // ---- calls ------------------------------------------------------------------------------------

  void step() {
    switch (in_.byte() % 26) {
      case 0:
        return create_context();
      case 1:
        return create_op();
      case 2:
        return create_session();
      case 3:
        return create_binding();
      case 4:
        return contexts_.drop(in_.byte());
      case 5:
        return ops_.drop(in_.byte());
      case 6:
        return sessions_.drop(in_.byte());
      case 7:
        return plans_.drop(in_.byte());
      case 8:
        return bindings_.drop(in_.byte());
      case 9:
        return look_at_context();
      case 10:
        return introspect();
      case 11:
        return query();
      case 12:
        return infer();
      case 13:
        return prepare();
      case 14:
        return look_at_plan();
      case 15:
        return execute_plan();
      case 16:
        return set_one();
      case 17:
        return set_all();
      case 18:
        return prepare_binding();
      case 19:
        return execute_binding();
      case 20:
        return look_at_binding();
      case 21:
        return faults();
      case 22:
        return host_memory();
      case 23:
        return host_streams();
      case 24:
        return versions();
      default:
        return whole_step();
    }
  }

  void create_context() {
    if (contexts_.full()) return;
    attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
    desc.flags = in_.number<uint32_t>({0, 1, 2, 3});
    desc.device_type = in_.number<int32_t>({0, 1, 1, 2});
    desc.device_id = in_.number<int32_t>({0});
    desc.thread_count = in_.number<int32_t>({1, 1, 0, 2, -1});
    desc.reserved = in_.number<uint32_t>({0});
    if (in_.rarely(4)) desc.simd_level = in_.text({"generic", "sse4", "avx2", "avx512", "neon"});
    if (in_.rarely(4)) desc.engine = in_.text({"generic", "simd", ""});
    if (in_.rarely(32)) desc.native_context = &desc;
    if (in_.rarely(8)) desc.cache_folder = in_.text({"", "cache"});
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.minimum_severity = in_.number<int32_t>({0, 1, 4, 5});
    if (!in_.rarely(8)) logger.log = [](void*, int32_t, const char* text) { require(*text != 0); };
    if (in_.rarely(4)) desc.logger = in_.given(logger);
    attn_allocator allocator = ATTN_ALLOCATOR_INIT;
    allocator.allocate = [](void*, uint32_t, uint64_t bytes, uint64_t alignment, void*) {
      void* memory = nullptr;
      return bytes > (1u << 26) || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr
                                                                                  : memory;
    };
    allocator.deallocate = [](void*, uint32_t, void* memory, uint64_t, void*) {
      std::free(memory);
    };
    if (in_.rarely(4)) desc.allocator = in_.given(allocator);
    attn_executor executor = ATTN_EXECUTOR_INIT;
    executor.concurrency = [](void*) -> int32_t { return 3; };
    executor.parallel_for = [](void*, int32_t count, void (*task)(void*, int32_t), void* context) {
      for (int32_t i = 0; i < count; ++i) task(context, i);
    };
    if (in_.rarely(4)) desc.executor = in_.given(executor);
    attn_context* context = nullptr;
    done(attn_context_create(in_.given(desc), place(&context), error()));
    contexts_.add(context);
  }

  void create_op() {
    if (ops_.full()) return;
    const size_t count = in_.byte() % 8;
    auto* attributes = in_.array<attn_attribute>(count + 2);
    for (size_t i = 0; i < count + 2; ++i) {
      attn_attribute attribute{};
      attribute.type = ATTN_ATTRIBUTE_INT;
      if (i < 2 && !in_.rarely(32)) {
        attribute.name = i == 0 ? "num_heads" : "kv_num_heads";
        attribute.i = in_.number<int64_t>({2, 1, 4});
        attributes[i] = attribute;
        continue;
      }
      attribute.name = in_.text({"causal", "scale", "softcap", "local_window_size", "do_rotary",
                                 "rotary_interleaved", "smooth_softmax", "qk_output",
                                 "qk_norm_epsilon", "empty_slots", "k_quant_type",
                                 "sliding_window_cache", "kv_cache_bit_width", "num_heads"});
      attribute.type = in_.number<uint32_t>({1, 1, 1, 2, 3, 4, 5});
      attribute.i = in_.number<int64_t>({0, 1, 2, -1, 8});
      attribute.f = in_.one_of<double>({0.0, 1.0, -1.0, 0.125, 30.0, 1e300, -0.0});
      if (attribute.type == ATTN_ATTRIBUTE_STRING) {
        attribute.data = in_.text({"NONE", "PER_TENSOR", ""});
      } else if (attribute.type > ATTN_ATTRIBUTE_STRING) {
        attribute.count = in_.one_of<uint32_t>({0, 1, 3, 0xffffffffu, 70000});
        const size_t held = attribute.count <= 3 ? attribute.count : 0;
        if (!in_.rarely(4)) attribute.data = std::memset(in_.block(8 * held), 0, 8 * held);
      }
      attributes[i] = attribute;
    }
    attn_op_desc desc = ATTN_OP_DESC_INIT;
    desc.flags = in_.number<uint32_t>({0, 0, 0, 0, 1});
    desc.domain = in_.rarely(8) ? in_.text({"", "ai.onnx", "pkg.nxrt"}) : "com.microsoft";
    desc.type = in_.rarely(8) ? in_.text({"Attention", ""}) : "GroupQueryAttention";
    desc.version = in_.rarely(8) ? in_.number<int32_t>({0, 2, 23}) : 1;
    desc.label = in_.text({"layer0", "", "a label"});
    desc.attributes = in_.rarely(32) ? nullptr : attributes;
    desc.attribute_count = in_.rarely(32) && desc.attributes == nullptr
                               ? in_.integer<uint32_t>()
                               : static_cast<uint32_t>(count + 2);
    attn_op* op = nullptr;
    done(attn_op_create(handle(contexts_), in_.given(desc), place(&op), error()));
    ops_.add(op);
  }

  void create_session() {
    if (sessions_.full()) return;
    attn_session_desc desc = ATTN_SESSION_DESC_INIT;
    desc.flags = in_.number<uint32_t>({0});
    desc.label = in_.text({"model", ""});
    attn_session* session = nullptr;
    done(attn_session_create(handle(contexts_), in_.given(desc), place(&session), error()));
    sessions_.add(session);
  }

  void create_binding() {
    if (bindings_.full()) return;
    attn_binding* binding = nullptr;
    done(attn_binding_create(handle(ops_), handle(sessions_), place(&binding), error()));
    bindings_.add(binding);
  }

  void look_at_context() {
    attn_context* context = handle(contexts_);
    done(attn_context_get_info(context, in_.given(attn_context_info{}), error()));
    done(attn_context_get_stats(context, in_.given(attn_context_stats{}), error()));
    done(attn_context_trim(context, error()));
  }

  void introspect() {
    const uint32_t index = in_.number<uint32_t>({0, 0, 1});
    const uint32_t position = in_.number<uint32_t>({0, 1, 4, 16, 17});
    uint32_t* count = in_.rarely(8) ? nullptr : in_.array<uint32_t>(1);
    done(attn_device_count(count, error()));
    done(attn_device_get_info(index, in_.given(attn_device_info{}), error()));
    done(attn_operator_count(count, error()));
    done(attn_operator_get_info(index, in_.given(attn_operator_info{}), error()));
    done(attn_operator_get_input(index, position, in_.given(attn_slot_info{}), error()));
    done(attn_operator_get_output(index, position, in_.given(attn_slot_info{}), error()));
    done(attn_operator_get_attribute(index, position, in_.given(attn_attribute_info{}), error()));
  }

  template <class Desc>
  Desc lists(const Call& call) {
    Desc desc{};
    desc.flags = in_.number<uint32_t>({0, 0, 0, 1, 2, 4});
    desc.inputs = in_.rarely(32) ? nullptr : call.inputs();
    desc.input_count = in_.rarely(32) ? 0 : call.input_count();
    desc.outputs = in_.rarely(32) ? nullptr : call.outputs();
    desc.output_count = in_.rarely(16) ? 0 : call.output_count();
    if (in_.rarely(32)) desc.input_count = 25 + in_.byte();
    if (in_.rarely(6)) {
      auto* aliases = in_.array<attn_alias>(2);
      aliases[0] = {in_.number<uint32_t>({3, 4}), in_.number<uint32_t>({1, 2})};
      aliases[1] = {4, 2};
      desc.aliases = aliases;
      desc.alias_count = in_.one_of<uint32_t>({1, 2, 0});
    }
    desc.reserved = in_.number<uint32_t>({0, 0, 0, 0, 0, 0, 0, 0});
    if (in_.rarely(6)) desc.engine = in_.text({"generic", "simd", ""});
    return desc;
  }

  void query() {
    const Call call(in_);
    const auto desc = lists<attn_query_desc>(call);
    done(attn_op_query(handle(ops_), in_.given(desc), in_.given(attn_support{}), error()));
  }

  void infer() {
    const Call call(in_);
    uint32_t* depends = in_.rarely(8) ? nullptr : in_.array<uint32_t>(1);
    done(attn_op_infer_output(handle(ops_), call.inputs(), call.input_count(),
                              in_.number<uint32_t>({0, 1, 2, 3, 0x1000}), in_.given(attn_tensor{}),
                              depends, error()));
  }

  attn_prepare_desc prepare_desc(const Call& call) {
    auto desc = lists<attn_prepare_desc>(call);
    if (in_.rarely(6)) desc.max_batch = in_.number<int64_t>({1, 8});
    if (in_.rarely(6)) desc.max_query_length = in_.number<int64_t>({1, 64});
    if (in_.rarely(6)) desc.max_total_length = in_.number<int64_t>({1, 64, 4096});
    return desc;
  }

  void prepare() {
    if (plans_.full()) return;
    const Call call(in_);
    attn_plan* plan = nullptr;
    done(attn_op_prepare(handle(ops_), in_.given(prepare_desc(call)), place(&plan), error()));
    plans_.add(plan);
  }

  void look_at_plan() {
    attn_plan* plan = handle(plans_);
    done(attn_plan_get_info(plan, in_.given(attn_plan_info{}), error()));
    const Text text = text_out();
    done(attn_plan_describe(plan, text.buffer, text.capacity, text.needed, error()));
  }

  attn_execute_desc execute_desc() {
    attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
    desc.flags = in_.number<uint32_t>({0, 0, 1, 1, 2, 3});
    if (in_.rarely(16)) desc.stream = &in_;
    if (in_.rarely(4)) {
      desc.workspace_bytes = in_.one_of<uint64_t>({0, 64, 4096, 1u << 20});
      auto address = reinterpret_cast<uintptr_t>(in_.block(desc.workspace_bytes + 64));
      if (!in_.rarely(8)) address = (address + 63) / 64 * 64;
      desc.workspace = reinterpret_cast<void*>(address);
    }
    return desc;
  }

  void execute_plan() {
    const Call call(in_);
    done(attn_plan_execute(handle(plans_), handle(sessions_), call.inputs(), call.input_count(),
                           call.outputs(), call.output_count(), in_.given(execute_desc()),
                           error()));
  }

  void set_one() {
    Call call(in_);
    const uint32_t slot = in_.number<uint32_t>({0, 1, 2, 3, 4, 5, 6, 0x1000});
    const attn_tensor* tensor = call.any_tensor();
    attn_binding* binding = handle(bindings_);
    if (in_.rarely(2)) {
      done(attn_binding_set_input(binding, slot, tensor, error()));
    } else {
      done(attn_binding_set_output(binding, slot, tensor, error()));
    }
  }

  void set_all() {
    const Call call(in_);
    done(attn_binding_set_tensors(handle(bindings_), call.inputs(), call.input_count(),
                                  call.outputs(), call.output_count(), error()));
  }

  void prepare_binding() {
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    if (in_.rarely(4)) {
      const Call call(in_);
      desc = prepare_desc(call);
    }
    done(attn_binding_prepare(handle(bindings_), in_.given(desc), error()));
  }

  void execute_binding() {
    done(attn_binding_execute(handle(bindings_), in_.given(execute_desc()), error()));
  }

  void look_at_binding() {
    attn_binding* binding = handle(bindings_);
    done(attn_binding_capture_support(binding, in_.given(attn_plan_info{}), error()));
    const Text text = text_out();
    done(attn_binding_describe(binding, text.buffer, text.capacity, text.needed, error()));
  }

  void faults() {
    attn_session* session = handle(sessions_);
    done(attn_session_poll_faults(session, in_.given(attn_fault_info{}), error()));
    done(attn_session_clear_faults(session, nullptr, error()));
    const Text text = text_out();
    done(
        attn_fault_text(in_.integer<uint32_t>(), text.buffer, text.capacity, text.needed, error()));
  }

  void host_memory() {
    attn_context* context = handle(contexts_);
    const uint32_t kind = in_.number<uint32_t>({1, 2, 4});
    void *a = nullptr, *b = nullptr;
    const uint64_t bytes = in_.number<uint64_t>({0, 16, 1000});
    if (bytes > (1u << 20) && bytes < (uint64_t{1} << 48)) return;  // honest, and too much
    done(attn_host_memory_alloc(context, kind, bytes, place(&a), error()));
    done(attn_host_memory_alloc(context, kind, bytes, &b, error()));
    if (a != nullptr) {
      std::memset(a, 1, bytes);
      void* target = in_.one_of({b, a, static_cast<void*>(nullptr)});
      done(attn_host_memory_copy(context, target, a, bytes, nullptr, error()));
      done(attn_host_memory_copy(context, b, nullptr, bytes, nullptr, error()));
    }
    for (void* memory : {a, b}) {
      const attn_status status = attn_host_memory_free(context, kind, memory, error());
      done(status);
      if (status != ATTN_OK) std::free(memory);
    }
  }

  void host_streams() {
    attn_context* context = handle(contexts_);
    void* stream = nullptr;
    done(attn_host_stream_create(context, in_.rarely(8) ? nullptr : &stream, error()));
    if (in_.rarely(8)) stream = &in_;
    done(attn_host_stream_synchronize(context, stream, error()));
    done(attn_host_stream_release(context, stream, error()));
    done(attn_host_graph_begin_capture(context, stream, error()));
    attn_host_graph* graph = nullptr;
    done(attn_host_graph_end_capture(context, stream, place(&graph), error()));
    require(graph == nullptr);
    graph = as<attn_host_graph>(handle(sessions_));
    done(attn_host_graph_launch(graph, stream, error()));
    attn_host_graph_release(graph);
  }

  void versions() {
    require(attn_version() != nullptr && attn_abi_version() == ATTN_ABI_VERSION);
    const attn_api* api = nullptr;
    const attn_host_api* host = nullptr;
    const uint32_t minimum = in_.number<uint32_t>({0, 1, 2, 0x10000});
    done(attn_get_api(minimum, place(&api), error()));
    done(attn_host_get_api(minimum, place(&host), error()));
  }

  // A call as it should be made, so that what lies behind the checks is reached often.
  void whole_step() {
    if (contexts_.size() == 0) create_context();
    if (ops_.size() == 0) create_op();
    if (sessions_.size() == 0) create_session();
    attn_binding* binding = nullptr;
    if (attn_binding_create(ops_.at(0), sessions_.at(0), &binding, nullptr) != ATTN_OK) return;
    const Call call(in_);
    done(attn_binding_set_tensors(binding, call.inputs(), call.input_count(), call.outputs(),
                                  call.output_count(), error()));
    attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
    desc.flags = ATTN_EXECUTE_PREPARE;
    done(attn_binding_execute(binding, &desc, error()));
    attn_binding_release(binding);
  }

  Input& in_;
  attn_error* error_ = nullptr;
  Pool<attn_context> contexts_{&attn_context_release};
  Pool<attn_op> ops_{&attn_op_release};
  Pool<attn_session> sessions_{&attn_session_release};
  Pool<attn_plan> plans_{&attn_plan_release};
  Pool<attn_binding> bindings_{&attn_binding_release};
};

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attn::fuzz::Input input(data, size);
  attn::fuzz::Session(input).run();
  return 0;
}
