/* The objects of attn_c.hpp: contexts, operators, sessions, plans, bindings, and what can be asked
 * without any. Include attn_c.hpp. */
#ifndef ATTN_C_OBJECTS_HPP_
#define ATTN_C_OBJECTS_HPP_

#include "attn_c.hpp"

namespace attn_c {

class Session;
class Plan;
class Binding;

// ---- Without a context --------------------------------------------------------------------------

/* The library's version, "major.minor.patch". */
inline std::string version() { return attn_version(); }
/* High 16 bits: major, low ones: minor. */
inline uint32_t abi_version() { return attn_abi_version(); }
/* The table of functions, for programs that hand it on; VersionMismatch where the library is older
 * than `minimum_abi`, or gives a table that is not what it says. With a `minimum_abi` below the
 * header's, members behind the table's struct_size may not be there. */
inline const attn_api& api(uint32_t minimum_abi = ATTN_ABI_VERSION) {
  const attn_api* table = nullptr;
  detail::check([&](attn_error* error) { return attn_get_api(minimum_abi, &table, error); });
  return detail::checked_table(table, minimum_abi, ATTN_ABI_VERSION);
}

/* The devices of this machine; those that cannot be used say why. */
inline std::vector<attn_device_info> devices() {
  uint32_t count = 0;
  detail::check([&](attn_error* error) { return attn_device_count(&count, error); });
  std::vector<attn_device_info> list;
  list.reserve(count);
  for (uint32_t index = 0; index < count; ++index) {
    list.push_back(detail::filled<attn_device_info>([&](attn_device_info* info, attn_error* error) {
      return attn_device_get_info(index, info, error);
    }));
  }
  return list;
}

/* An operator that the library knows, with its slots and attributes. */
struct OperatorInfo {
  attn_operator_info info;                     /* name, versions, summary */
  std::vector<attn_slot_info> inputs;          /* optional ones included */
  std::vector<attn_slot_info> outputs;         /* optional ones included */
  std::vector<attn_attribute_info> attributes; /* what it may have */
};

/* The operators that the library knows. */
inline std::vector<OperatorInfo> operators() {
  uint32_t count = 0;
  detail::check([&](attn_error* error) { return attn_operator_count(&count, error); });
  std::vector<OperatorInfo> list(count);
  for (uint32_t index = 0; index < count; ++index) {
    OperatorInfo& one = list[index];
    one.info = detail::filled<attn_operator_info>([&](attn_operator_info* info, attn_error* error) {
      return attn_operator_get_info(index, info, error);
    });
    const auto slots = [index](uint32_t size, auto get) {
      std::vector<attn_slot_info> found;
      found.reserve(size);
      for (uint32_t at = 0; at < size; ++at) {
        found.push_back(detail::filled<attn_slot_info>(
            [&](attn_slot_info* info, attn_error* error) { return get(index, at, info, error); }));
      }
      return found;
    };
    one.inputs = slots(one.info.input_count, attn_operator_get_input);
    one.outputs = slots(one.info.output_count, attn_operator_get_output);
    one.attributes.reserve(one.info.attribute_count);
    for (uint32_t at = 0; at < one.info.attribute_count; ++at) {
      one.attributes.push_back(
          detail::filled<attn_attribute_info>([&](attn_attribute_info* info, attn_error* error) {
            return attn_operator_get_attribute(index, at, info, error);
          }));
    }
  }
  return list;
}

/* The rules behind fault bits in words. */
inline std::string fault_text(uint32_t bits) {
  return detail::text([&](char* buffer, size_t capacity, size_t* needed, attn_error* error) {
    return attn_fault_text(bits, buffer, capacity, needed, error);
  });
}

// ---- Contexts -----------------------------------------------------------------------------------

/* Options of a context; empty texts and zeros are defaults. */
struct ContextOptions {
  int32_t device_type = ATTN_DEVICE_CPU; /* or ATTN_DEVICE_CUDA */
  int32_t device_id = 0;                 /* of devices() */
  int32_t thread_count = 0;              /* CPU: of one execute; 0: all that the process may use */
  uint32_t flags = 0;                    /* ATTN_CONTEXT_... */
  std::string simd_level;                /* CPU: a name of attn_context_info.simd_levels */
  std::string engine;                    /* forced for every plan */
  std::string driver_path;               /* CUDA: libcuda */
  std::string nvrtc_path;                /* CUDA: libnvrtc */
  std::string cache_folder;              /* CUDA: of the kernels' disk cache */
  uint64_t cache_limit_bytes = 0;        /* CUDA: of the disk cache */
  void* native_context = nullptr;        /* CUDA: a CUcontext */
  /* Receives the log, from any thread inside a call; must not throw. */
  std::function<void(int32_t severity, std::string_view text)> log;
  int32_t minimum_severity = 0;              /* ATTN_LOG_...; 0 = warnings */
  const attn_allocator* allocator = nullptr; /* of attn_c.h; the struct is copied */
  const attn_executor* executor = nullptr;   /* CPU: likewise */
};

/* An operator's claim: whether it would run. */
struct Support {
  bool supported;         /* it would */
  attn_status status;     /* what prepare would fail with */
  uint32_t capture_flags; /* ATTN_CAPTURE_... */
  std::string reason;     /* argument, what came, what is accepted; empty when supported */
  /* Whether it would run. */
  explicit operator bool() const noexcept { return supported; }
};

/* What a plan is asked to serve, beyond the tensors; zeros are defaults. */
struct PrepareOptions {
  uint32_t flags = 0;           /* ATTN_PREPARE_... */
  std::string engine;           /* forced by name in the stage that has it */
  int64_t max_batch = 0;        /* the range that the plan serves: sequences, */
  int64_t max_query_length = 0; /* new tokens of one sequence, */
  int64_t max_total_length = 0; /* keys of one sequence */

  /* As C functions take them; valid while this object is and is not changed. */
  attn_prepare_desc desc() const {
    attn_prepare_desc desc = attn_init<attn_prepare_desc>();
    desc.flags = flags;
    desc.engine = detail::or_null(engine, "the engine's name");
    desc.max_batch = max_batch;
    desc.max_query_length = max_query_length;
    desc.max_total_length = max_total_length;
    return desc;
  }
};

/* How to run once. */
struct ExecuteOptions {
  uint32_t flags = 0;           /* ATTN_EXECUTE_... */
  void* stream = nullptr;       /* CUDA: a CUstream; null: the default one */
  void* workspace = nullptr;    /* scratch of the caller; null: the session's */
  uint64_t workspace_bytes = 0; /* at least attn_plan_info.workspace_bytes */

  /* As C functions take them. */
  attn_execute_desc desc() const {
    attn_execute_desc desc = attn_init<attn_execute_desc>();
    desc.flags = flags;
    desc.stream = stream;
    desc.workspace = workspace;
    desc.workspace_bytes = workspace_bytes;
    return desc;
  }
};

/* What an output will be. */
struct Inferred {
  attn_tensor tensor;    /* its type, shape and row-major strides */
  bool depends_on_value; /* a size is -1, since a value decides it */
};

/* A device with its options and caches. */
class Context : public detail::Handle<attn_context, attn_context_release> {
 public:
  /* The CPU with defaults. */
  static Context cpu() { return Context(ContextOptions()); }
  Context() = default;
  /* As `attn_context_create`. */
  explicit Context(const ContextOptions& options) : Handle(open(options)) {}

  attn_context_info info() const {
    return detail::filled<attn_context_info>([this](attn_context_info* info, attn_error* error) {
      return attn_context_get_info(get(), info, error);
    });
  }
  attn_context_stats stats() const {
    return detail::filled<attn_context_stats>([this](attn_context_stats* stats, attn_error* error) {
      return attn_context_get_stats(get(), stats, error);
    });
  }
  void trim() const {
    detail::check([this](attn_error* error) { return attn_context_trim(get(), error); });
  }

 private:
  using Log = std::function<void(int32_t, std::string_view)>;

  static attn_context* open(const ContextOptions& options) {
    attn_context_desc desc = attn_init<attn_context_desc>();
    desc.device_type = options.device_type;
    desc.device_id = options.device_id;
    desc.thread_count = options.thread_count;
    desc.flags = options.flags;
    desc.simd_level = detail::or_null(options.simd_level, "simd_level");
    desc.engine = detail::or_null(options.engine, "engine");
    desc.driver_path = detail::or_null(options.driver_path, "driver_path");
    desc.nvrtc_path = detail::or_null(options.nvrtc_path, "nvrtc_path");
    desc.cache_folder = detail::or_null(options.cache_folder, "cache_folder");
    desc.cache_limit_bytes = options.cache_limit_bytes;
    desc.native_context = options.native_context;
    desc.allocator = options.allocator;
    desc.executor = options.executor;
    attn_logger logger = attn_init<attn_logger>();
    std::unique_ptr<Log> log;
    if (options.log) {
      log = std::make_unique<Log>(options.log);
      logger.minimum_severity = options.minimum_severity;
      logger.user = log.get();
      logger.release_user = [](void* user) { delete static_cast<Log*>(user); };
      logger.log = [](void* user, int32_t severity, const char* text) {
        (*static_cast<Log*>(user))(severity, text);
      };
      desc.logger = &logger;
    }
    attn_context* made = create([&](attn_context** context, attn_error* error) {
      return attn_context_create(&desc, context, error);
    });
    [[maybe_unused]] Log* kept = log.release(); /* the context's, from here on */
    return made;
  }
};

// ---- Sessions -----------------------------------------------------------------------------------

/* One order of executions; one thread at a time. */
class Session : public detail::Handle<attn_session, attn_session_release> {
 public:
  Session() = default;
  explicit Session(const Context& context, const std::string& label = {})
      : Handle(create([&](attn_session** session, attn_error* error) {
          attn_session_desc desc = attn_init<attn_session_desc>();
          desc.label = detail::or_null(label, "the label");
          return attn_session_create(context.get(), &desc, session, error);
        })) {}

  attn_fault_info poll_faults() const {
    return detail::filled<attn_fault_info>([this](attn_fault_info* info, attn_error* error) {
      return attn_session_poll_faults(get(), info, error);
    });
  }
  void clear_faults(void* stream = nullptr) const {
    detail::check(
        [&](attn_error* error) { return attn_session_clear_faults(get(), stream, error); });
  }
};

// ---- Plans --------------------------------------------------------------------------------------

/* How a shape class of an op runs; for any threads at once. Made by Op::prepare. */
class Plan : public detail::Handle<attn_plan, attn_plan_release> {
 public:
  Plan() = default;
  /* Takes one reference over. */
  explicit Plan(attn_plan* owned) noexcept : Handle(owned) {}

  attn_plan_info info() const {
    return detail::filled<attn_plan_info>([this](attn_plan_info* info, attn_error* error) {
      return attn_plan_get_info(get(), info, error);
    });
  }
  /* JSON text. */
  std::string describe() const {
    return detail::text([this](char* buffer, size_t capacity, size_t* needed, attn_error* error) {
      return attn_plan_describe(get(), buffer, capacity, needed, error);
    });
  }
  void execute(const Session& session, const Arguments& inputs, const Arguments& outputs,
               const ExecuteOptions& options = {}) const {
    const attn_execute_desc desc = options.desc();
    detail::check([&](attn_error* error) {
      return attn_plan_execute(get(), session.get(), inputs.data(), inputs.size(), outputs.data(),
                               outputs.size(), &desc, error);
    });
  }
};

// ---- Operators ----------------------------------------------------------------------------------

/* An operator with its attributes; for any threads at once. */
class Op : public detail::Handle<attn_op, attn_op_release> {
 public:
  Op() = default;
  Op(const Context& context, const std::string& domain, const std::string& type, int32_t version,
     const Attributes& attributes = {}, const std::string& label = {})
      : Handle(create([&](attn_op** op, attn_error* error) {
          attn_op_desc desc = attn_init<attn_op_desc>();
          desc.domain = detail::c_text(domain, "the domain");
          desc.type = detail::c_text(type, "the operator's type");
          desc.label = detail::or_null(label, "the label");
          desc.version = version;
          desc.attributes = attributes.data();
          desc.attribute_count = attributes.size();
          return attn_op_create(context.get(), &desc, op, error);
        })) {}

  /* The claim gate. Tensors without data, or with data that is not looked at. */
  Support query(const Arguments& inputs, const Arguments& outputs = {},
                const std::vector<attn_alias>& aliases = {}, const std::string& engine = {}) const {
    attn_query_desc desc = attn_init<attn_query_desc>();
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.outputs = outputs.data();
    desc.output_count = outputs.size();
    desc.aliases = aliases.data();
    desc.alias_count = static_cast<uint32_t>(aliases.size());
    desc.engine = detail::or_null(engine, "the engine's name");
    const attn_support support =
        detail::filled<attn_support>([&](attn_support* answer, attn_error* error) {
          return attn_op_query(get(), &desc, answer, error);
        });
    return {support.supported != 0, support.status, support.capture_flags, support.reason};
  }

  Inferred infer_output(const Arguments& inputs, uint32_t slot) const {
    uint32_t depends = 0;
    const attn_tensor tensor =
        detail::filled<attn_tensor>([&](attn_tensor* output, attn_error* error) {
          return attn_op_infer_output(get(), inputs.data(), inputs.size(), slot, output, &depends,
                                      error);
        });
    return {tensor, depends != 0};
  }

  Plan prepare(const Arguments& inputs, const Arguments& outputs,
               const PrepareOptions& options = {},
               const std::vector<attn_alias>& aliases = {}) const {
    attn_prepare_desc desc = options.desc();
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.outputs = outputs.data();
    desc.output_count = outputs.size();
    desc.aliases = aliases.data();
    desc.alias_count = static_cast<uint32_t>(aliases.size());
    attn_plan* plan = nullptr;
    detail::check([&](attn_error* error) { return attn_op_prepare(get(), &desc, &plan, error); });
    return Plan(plan);
  }
};

// ---- Bindings -----------------------------------------------------------------------------------

/* An op's tensors tied to a session, with the plan that fits them; one thread at a time. */
class Binding : public detail::Handle<attn_binding, attn_binding_release> {
 public:
  Binding() = default;
  Binding(const Op& op, const Session& session)
      : Handle(create([&](attn_binding** binding, attn_error* error) {
          return attn_binding_create(op.get(), session.get(), binding, error);
        })) {}

  /* Binds one input, as `attn_binding_set_input`. */
  void set_input(uint32_t slot, const attn_tensor& tensor) const { set_input(slot, &tensor); }
  /* The input is absent from now on. */
  void unset_input(uint32_t slot) const { set_input(slot, nullptr); }
  /* Binds one output, as `attn_binding_set_output`. */
  void set_output(uint32_t slot, const attn_tensor& tensor) const { set_output(slot, &tensor); }
  /* The output is absent from now on. */
  void unset_output(uint32_t slot) const { set_output(slot, nullptr); }
  /* Replaces all tensors at once. */
  void set_tensors(const Arguments& inputs, const Arguments& outputs) const {
    detail::check([&](attn_error* error) {
      return attn_binding_set_tensors(get(), inputs.data(), inputs.size(), outputs.data(),
                                      outputs.size(), error);
    });
  }

  void prepare(const PrepareOptions& options = {}) const {
    const attn_prepare_desc desc = options.desc();
    detail::check([&](attn_error* error) { return attn_binding_prepare(get(), &desc, error); });
  }
  void execute(const ExecuteOptions& options = {}) const {
    const attn_execute_desc desc = options.desc();
    detail::check([&](attn_error* error) { return attn_binding_execute(get(), &desc, error); });
  }
  attn_plan_info capture_support() const {
    return detail::filled<attn_plan_info>([this](attn_plan_info* info, attn_error* error) {
      return attn_binding_capture_support(get(), info, error);
    });
  }
  std::string describe() const {
    return detail::text([this](char* buffer, size_t capacity, size_t* needed, attn_error* error) {
      return attn_binding_describe(get(), buffer, capacity, needed, error);
    });
  }

 private:
  void set_input(uint32_t slot, const attn_tensor* tensor) const {
    detail::check(
        [&](attn_error* error) { return attn_binding_set_input(get(), slot, tensor, error); });
  }
  void set_output(uint32_t slot, const attn_tensor* tensor) const {
    detail::check(
        [&](attn_error* error) { return attn_binding_set_output(get(), slot, tensor, error); });
  }
};

}  // namespace attn_c

#endif /* ATTN_C_OBJECTS_HPP_ */
