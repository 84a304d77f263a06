/* attn_c: the attention operators of language models behind a C ABI.
 *
 * This header is self-contained C99 and is also valid C++11 and later. A program may link against
 * the library, or open it at run time and fetch everything through attn_get_api.
 *
 * Conventions
 *   Handles     Pointers to incomplete types. Every release function takes null, may be called from
 *               any thread and in any order: an object lives until nothing needs it any more, a
 *               call that is under way included.
 *   Status      Functions that can fail return an attn_status and take an attn_error* (may be null)
 *               as their last parameter. On success only its `status` is written. A function that
 *               fails before its first launch leaves outputs untouched and nothing to clean up.
 *   struct_size Every growable struct begins with it: set it to sizeof(the struct) and zero the
 *               rest (ATTN_X_INIT does both). Sizes are 8 to 4096 bytes, those of input structs
 *               multiples of 8; any other is ATTN_INVALID_ARGUMENT, and nothing behind the size
 *               word is read. An input struct that is shorter than the library's: what it lacks
 *               counts as zero. One that is longer: what the library does not know must be zero,
 *               else ATTN_VERSION. Of output structs the library writes min(struct_size, its own
 *               size) bytes and zeroes what the caller has beyond; struct_size itself stays.
 *               Zero means the default. Growable structs never stand in arrays; frozen ones (said
 *               so at each) may.
 *   flags       Bits that this header does not name, and any bit where it names none, are
 *               ATTN_INVALID_ARGUMENT.
 *   reserved    Must be zero in; is zero out.
 *   Ownership   Structs, lists and texts that go in are copied: they may go away when the function
 *               returns. Tensor data is never copied or owned: see attn_tensor.
 *   Text in     UTF-8, NUL-terminated, read before the function returns.
 *   Text out    Two-call rule: `buffer` of `capacity` bytes (null and 0 to ask), `*needed` receives
 *               the bytes with the terminating NUL. A short buffer gets a truncated, terminated
 *               text, and the call still succeeds; `needed` may be null. `const char*` fields in
 *               output structs are never null and point to memory that lives as long as the object
 *               asked (static where there is none). Texts in char arrays are cut to fit.
 *   Threads     Each function says what it allows. "Any" means any threads at once.
 *   Callbacks   The library calls back only on threads that are inside one of its calls, or on
 *               workers that such a call started. It never prints, never throws, never changes the
 *               caller's current CUDA context, locale, signal state or environment.
 */
#ifndef ATTN_C_H_
#define ATTN_C_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ATTN_EXPORT __declspec(dllimport)
#else
#define ATTN_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version --------------------------------------------------------------------------------- */

/* Version of this header: the ABI that a client compiled from it may ask for. High 16 bits: major,
 * 0 until the ABI is frozen at 1.0; low 16 bits: minor, which counts additions. */
#define ATTN_ABI_VERSION 0x00000001u
#define ATTN_VERSION_STRING "0.1.0"

/* ---- Status ---------------------------------------------------------------------------------- */

/* Values that a client does not know are failures. */
typedef int32_t attn_status;
#define ATTN_OK 0
#define ATTN_INVALID_ARGUMENT 1 /* the caller's mistake */
#define ATTN_UNSUPPORTED 2      /* a legal request that no engine serves */
#define ATTN_VERSION 3          /* ABI or struct newer than the library */
#define ATTN_UNAVAILABLE 4      /* no driver, device or compiler library */
#define ATTN_NOT_PREPARED 5     /* no plan fits the call; prepare first */
#define ATTN_CAPTURE 6          /* not possible while the stream captures */
#define ATTN_BUSY 7             /* a one-at-a-time object is in use elsewhere */
#define ATTN_OUT_OF_MEMORY 8    /* memory of the host or the device */
#define ATTN_COMPILE 9          /* a kernel did not compile */
#define ATTN_DEVICE 10          /* the driver or device reported an error */
#define ATTN_FAULT 11           /* the session is poisoned; not returned by this version */
#define ATTN_INTERNAL 12        /* a defect of the library */

/* attn_error.native_domain: whose code stands in native_code. */
#define ATTN_DOMAIN_NONE 0u
#define ATTN_DOMAIN_CUDA 1u
#define ATTN_DOMAIN_NVRTC 2u
#define ATTN_DOMAIN_ERRNO 3u

/* attn_error.flags */
#define ATTN_ERROR_TRUNCATED 1u /* the message did not fit */
#define ATTN_ERROR_STICKY 2u    /* the device context is lost; retrying cannot help */

/* What went wrong, in the caller's memory. `struct_size` may be any from 8 on: the message is cut
 * to fit, and fields that are not there whole are left alone. Where it is below 8 or above 4096
 * nothing is written, as for null. */
typedef struct attn_error {
  uint32_t struct_size;
  attn_status status;     /* what the function returned */
  int64_t native_code;    /* of the driver, the compiler or the system; 0 = none */
  uint32_t native_domain; /* ATTN_DOMAIN_... */
  uint32_t flags;         /* ATTN_ERROR_... */
  char message[1000];     /* operator and label, argument, what came, what is accepted */
} attn_error;

/* ---- Objects --------------------------------------------------------------------------------- */

/* "any": any threads at once. "one at a time": a second call at the same time is ATTN_BUSY. */
typedef struct attn_context attn_context; /* a device with its options and caches; threads: any */
typedef struct attn_session attn_session; /* one order of executions; threads: one at a time */
typedef struct attn_op attn_op;           /* an operator with its attributes; threads: any */
typedef struct attn_plan attn_plan;       /* how a shape class of an op runs; threads: any */
typedef struct attn_binding attn_binding; /* an op's tensors tied to a session; one at a time */

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Codes and meanings of DLPack. */
#define ATTN_DEVICE_CPU 1
#define ATTN_DEVICE_CUDA 2
#define ATTN_DEVICE_CUDA_HOST 3     /* pinned host memory */
#define ATTN_DEVICE_CUDA_MANAGED 13 /* managed memory */

#define ATTN_DTYPE_INT 0    /* signed, two's complement */
#define ATTN_DTYPE_UINT 1   /* unsigned */
#define ATTN_DTYPE_FLOAT 2  /* IEEE 754 */
#define ATTN_DTYPE_BFLOAT 4 /* bfloat16 */
#define ATTN_DTYPE_BOOL 6   /* one byte an element, zero is false */

/* An element type with DLPack's codes. Frozen. */
typedef struct attn_dtype {
  uint8_t code;   /* ATTN_DTYPE_... */
  uint8_t bits;   /* of an element */
  uint16_t lanes; /* 1 */
} attn_dtype;

#define ATTN_MAX_RANK 8 /* axes that a tensor may have */

/* attn_tensor.flags */
#define ATTN_TENSOR_READ_ONLY 1u /* may not be bound as an output */
#define ATTN_TENSOR_BROADCAST 2u /* strides that are all zero are meant: one element for all */

/* A strided tensor in the caller's memory. The library copies the description and never owns the
 * data, which must be aligned to its element size. Element (i0, i1, ...) lies at
 * data + byte_offset + size * sum(i_k * strides[k]). */
typedef struct attn_tensor {
  uint32_t struct_size;
  uint32_t flags;                 /* ATTN_TENSOR_... */
  int32_t device_type;            /* ATTN_DEVICE_...; without data 0 is the context's */
  int32_t device_id;              /* 0 for host memory */
  attn_dtype dtype;               /* of an element */
  int32_t ndim;                   /* 0..8 */
  int64_t shape[ATTN_MAX_RANK];   /* elements; in queries and inference -1 is "any" */
  int64_t strides[ATTN_MAX_RANK]; /* elements; 0 and negative are legal on inputs. All zero are
                                     strides that were not stated, unless ATTN_TENSOR_BROADCAST is
                                     set: row-major without gaps in queries, inference and prepare
                                     without data, refused with data of more than one element. */
  void* data;                     /* null in queries, inference and prepare by shape */
  uint64_t byte_offset;           /* added to data; data itself may be opaque to the host */
  uint64_t data_bytes;            /* bytes behind data, 0 = unknown; checked against the strides */
} attn_tensor;

/* One argument of an operator, each slot at most once, in any order. Absent slots are not listed.
 * Frozen. */
typedef struct attn_arg {
  uint32_t slot; /* the standard's index, or ATTN_SLOT_EXTENSION and up */
  uint32_t reserved;
  const attn_tensor* tensor; /* null: an output that is wanted, in query and prepare alone */
} attn_arg;

/* An output that shares an input's memory, said before any memory is bound. Frozen. */
typedef struct attn_alias {
  uint32_t input_slot;  /* whose memory is shared */
  uint32_t output_slot; /* that lies there too */
} attn_alias;

#define ATTN_SLOT_EXTENSION 0x1000u /* slots from here on are this library's, no standard's */
/* Output of every softmax operator: log-sum-exp of the scores, float32, natural logarithm, without
 * sink and smooth term. Shape (B, Hq, S), or (Hq, tokens) where tokens are packed. */
#define ATTN_SLOT_LOG_SUM_EXP 0x1000u

/* ---- Callbacks ------------------------------------------------------------------------------- */

/* Callback structs are copied, `user` is handed to each function of its struct. `release_user`,
 * unless null, is called once, after the last use; it is not called where no context could be made.
 * Functions other than release_user are required (ATTN_INVALID_ARGUMENT). None may throw.
 *
 * A callback runs with no lock of the library held. It may call the library, handles of the call
 * around it included, as far as its struct says; a session or binding that this call works with is
 * ATTN_BUSY meanwhile. release_user comes when the context is gone: it may call what needs none. */

#define ATTN_MEMORY_HOST 1u   /* the host's */
#define ATTN_MEMORY_DEVICE 2u /* the device's */
#define ATTN_MEMORY_PINNED 4u /* the host's, pinned for the device */

/* Memory of sessions: scratch, and on a CUDA device the words of their faults. `allocate` gives
 * `bytes` of a `kind` ATTN_MEMORY_... at an address that is a multiple of `alignment` (a power of
 * 2), or null where there is none (ATTN_OUT_OF_MEMORY). Both are called from any thread inside a
 * call.
 *
 * HOST, on the CPU: scratch. DEVICE, on a CUDA device: scratch, asked for inside an execute with
 * its `stream` (null: the default one), where it is used first; later uses are ordered behind, as
 * the session's executions are, so that cuMemAllocAsync and caching allocators serve. And a little
 * over 64 KiB when a session is created, with a null stream, to be usable at once on every stream.
 * PINNED, on a CUDA device: then too, a few bytes that the device can address (cuMemHostAlloc,
 * cudaMallocHost). The device's CUDA context is current and the thread's capture mode is relaxed
 * meanwhile.
 *
 * `deallocate` gets what allocate gave with its size. A stream that is not null is that of the
 * execute which replaces the memory by more: what used it is behind that stream, as the session's
 * executions are. Outside of an execute (prepare, trim, creation of a session, release of the
 * context) the stream is null and work that used the memory may still run: free it as cuMemFree
 * does, or behind the streams that the session ran on. Memory that a graph holds comes back after
 * the graph; where the context goes first it never does, and release_user must leave it alone.
 *
 * Both may call every function; an execute on another session asks for that session's scratch in
 * turn. `deallocate` may come from a release function that lets go of the last session: the context
 * may then be used only where the caller holds a handle of it. */
typedef struct attn_allocator {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  void (*release_user)(void* user);
  void* (*allocate)(void* user, uint32_t kind, uint64_t bytes, uint64_t alignment, void* stream);
  void (*deallocate)(void* user, uint32_t kind, void* memory, uint64_t bytes, void* stream);
} attn_allocator;

#define ATTN_LOG_DEBUG 1   /* for those who look for a defect */
#define ATTN_LOG_INFO 2    /* what was done */
#define ATTN_LOG_WARNING 3 /* what may be unwanted */
#define ATTN_LOG_ERROR 4   /* what went wrong */

/* Receives the library's log lines, terminated and without a newline; without it there is no log.
 * Called from any thread inside a call, from several at once.
 *
 * `log` may call every function, prepare for the same shapes included: a line is handed out when
 * what it tells of is done, so a plan that it names is found and not made again. */
typedef struct attn_logger {
  uint32_t struct_size;
  int32_t minimum_severity; /* ATTN_LOG_...; 0 = ATTN_LOG_WARNING */
  void* user;
  void (*release_user)(void* user);
  void (*log)(void* user, int32_t severity, const char* text);
} attn_logger;

/* The host's thread pool. Results never depend on it. `parallel_for` calls task(task_context, i)
 * for every i in [0, count), on any threads, and returns when all have ended; tasks never throw and
 * never wait for each other, so that one thread may do all. Called inside execute of the CPU back
 * end, from several threads at once where sessions run at once.
 *
 * `concurrency` is asked while the context is made, so there is none to call with yet.
 * `parallel_for` may call every function before, between and after its tasks; an execute on another
 * session calls parallel_for in turn, on the same thread.
 *
 * Without an executor the CPU uses one pool of the process, shared by all contexts: an execute that
 * finds it taken by another runs its tasks one after the other on its own thread. */
typedef struct attn_executor {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  void (*release_user)(void* user);
  int32_t (*concurrency)(void* user); /* threads that it may use, asked once; below 1 is 1 */
  void (*parallel_for)(void* user, int32_t count, void (*task)(void* task_context, int32_t index),
                       void* task_context);
} attn_executor;

/* ---- Devices and contexts -------------------------------------------------------------------- */

/* A device of this machine, listed before any context exists. */
typedef struct attn_device_info {
  uint32_t struct_size;
  uint32_t available;  /* 1: a context can be made; 0: `reason` says why not */
  int32_t device_type; /* for attn_context_desc, as device_id */
  int32_t device_id;   /* among the devices of its type */
  char name[128];      /* for people */
  char reason[1024];   /* with every place that was tried; empty where available */
} attn_device_info;

#define ATTN_CONTEXT_IGNORE_ENVIRONMENT 1u /* no ATTN_C_... variable counts */
#define ATTN_CONTEXT_NO_DISK_CACHE 2u /* CUDA: kernels are neither read from nor kept on disk */

/* Options of a context. What stands here wins over the environment (docs/environment.md). Texts are
 * copied; what is said of CUDA counts there alone, as what is said of the CPU. */
typedef struct attn_context_desc {
  uint32_t struct_size;
  uint32_t flags;       /* ATTN_CONTEXT_... */
  int32_t device_type;  /* ATTN_DEVICE_CPU or ATTN_DEVICE_CUDA; 0 = ATTN_DEVICE_CPU */
  int32_t device_id;    /* of attn_device_info; the CPU is 0 */
  int32_t thread_count; /* CPU: threads that one execute may use, 0 = all that the process may */
  uint32_t reserved;
  const char* simd_level; /* CPU: null = the best; else a name of the context info's list */
  const char* engine; /* forced for every plan: a name of the context info's list; null = choose */
  void* native_context;    /* CUDA: a CUcontext; null = the current one if it is on the device, else
                               the primary one. Fixed for the context's life; the CPU has none. */
  const char* driver_path; /* CUDA: libcuda, null = search */
  const char* nvrtc_path;  /* CUDA: libnvrtc, null = search */
  const char* cache_folder;        /* kernels' disk cache, null = the default folder */
  uint64_t cache_limit_bytes;      /* of the disk cache, 0 = 256 MiB */
  const attn_allocator* allocator; /* of scratch; the structs are copied */
  const attn_logger* logger;       /* null: there is no log */
  const attn_executor* executor;   /* CPU: instead of the library's pool */
} attn_context_desc;

/* What a context runs on. Texts live as long as the context; what does not apply is empty. */
typedef struct attn_context_info {
  uint32_t struct_size;
  int32_t device_type;        /* ATTN_DEVICE_... */
  int32_t device_id;          /* among the devices of its type */
  int32_t thread_count;       /* CPU: threads of one execute */
  const char* device_name;    /* for people */
  const char* architecture;   /* CPU: "x86-64"; CUDA: "sm_90" */
  const char* simd_level;     /* CPU: in use */
  const char* simd_levels;    /* CPU: all that this machine has, best first, joined with "," */
  const char* engines;        /* names that may be forced, joined with "," */
  const char* driver_version; /* CUDA, as all that follow: "13.0" */
  const char* driver_path;    /* libcuda, as it was opened */
  const char* nvrtc_version;  /* empty where none can be opened: ready kernels alone serve then */
  const char* nvrtc_path;     /* as it was opened */
  const char* cache_folder;   /* of the kernels' disk cache; empty where it is off */
  const char* uuid;           /* the device's */
  const char* pci_id;         /* the device's address on the bus */
} attn_context_info;

/* Counters of a context since its creation, and of what lives now. */
typedef struct attn_context_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t plans_created;       /* plan cache misses */
  uint64_t plan_cache_hits;     /* prepares that found their plan */
  uint64_t plans_live;          /* now, those of the cache included */
  uint64_t ops_live;            /* now, as the next two */
  uint64_t sessions_live;       /* sessions */
  uint64_t bindings_live;       /* bindings */
  uint64_t executions;          /* that succeeded */
  uint64_t scratch_allocations; /* times that scratch of any session grew */
  uint64_t scratch_bytes;       /* held now */
  uint64_t kernel_compiles;     /* CUDA, as the rest */
  uint64_t disk_cache_hits;     /* kernels that were read from disk */
  uint64_t disk_cache_misses;   /* kernels that were looked for there */
} attn_context_stats;

/* ---- Operators ------------------------------------------------------------------------------- */

/* An operator that the library knows. Texts are static. */
typedef struct attn_operator_info {
  uint32_t struct_size;
  int32_t version_first;    /* the first version of the domain's opset that means this contract */
  int32_t version_last;     /* the last one */
  uint32_t input_count;     /* slots that there are, optional ones included */
  uint32_t output_count;    /* likewise */
  uint32_t attribute_count; /* attributes that it may have */
  const char* domain;       /* "ai.onnx", "com.microsoft" */
  const char* type;         /* "GroupQueryAttention" */
  const char* summary;      /* what it computes */
} attn_operator_info;

/* A slot of an operator. Texts are static. */
typedef struct attn_slot_info {
  uint32_t struct_size;
  uint32_t slot;     /* for attn_arg.slot */
  uint32_t optional; /* 1: may be absent */
  uint32_t memory;   /* accepted ATTN_MEMORY_... bits of a CUDA context; the CPU takes host */
  int32_t may_alias; /* outputs: the input slot whose memory it may share, -1 none */
  uint32_t reserved;
  const char* name;  /* in the standard */
  const char* types; /* accepted element types, joined with "," */
  const char* shape; /* with the letters of the documentation */
} attn_slot_info;

#define ATTN_ATTRIBUTE_INT 1u    /* int64_t */
#define ATTN_ATTRIBUTE_FLOAT 2u  /* float, given as double */
#define ATTN_ATTRIBUTE_STRING 3u /* UTF-8 */
#define ATTN_ATTRIBUTE_INTS 4u   /* int64_t each */
#define ATTN_ATTRIBUTE_FLOATS 5u /* float each */

/* An attribute of an operator. Texts are static. */
typedef struct attn_attribute_info {
  uint32_t struct_size;
  uint32_t type;     /* ATTN_ATTRIBUTE_... */
  uint32_t required; /* 1: no default */
  uint32_t reserved;
  const char* name;         /* in the standard */
  const char* default_text; /* empty for required ones */
  const char* summary;      /* what it does */
} attn_attribute_info;

/* An attribute's value. Frozen. */
typedef struct attn_attribute {
  const char* name; /* in the standard */
  uint32_t type;    /* ATTN_ATTRIBUTE_... */
  uint32_t count; /* elements of INTS and FLOATS, bytes of STRING without NUL (0: NUL-terminated) */
  int64_t i;      /* INT */
  double f;       /* FLOAT */
  const void* data; /* STRING: const char*; INTS: const int64_t*; FLOATS: const float* */
} attn_attribute;

/* An operator to create. */
typedef struct attn_op_desc {
  uint32_t struct_size;
  uint32_t flags;                   /* none in this version */
  const char* domain;               /* null, "" and "ai.onnx" are the same */
  const char* type;                 /* "GroupQueryAttention" */
  const char* label;                /* the node's name for messages, may be null */
  const attn_attribute* attributes; /* each name at most once */
  uint32_t attribute_count;         /* at most 256 */
  int32_t version;                  /* the opset version of the model's domain */
} attn_op_desc;

/* ---- Query, inference, prepare, execute ------------------------------------------------------ */

/* Capture facts. The CPU captures nothing: 0. */
#define ATTN_CAPTURE_SUPPORTED 1u         /* execute can be captured once prepared */
#define ATTN_CAPTURE_NEEDS_PREPARE 2u     /* not prepared yet */
#define ATTN_CAPTURE_POINTERS_BAKED 4u    /* addresses and capacities are fixed by a capture */
#define ATTN_CAPTURE_LENGTHS_ON_DEVICE 8u /* lengths may change between replays */
#define ATTN_CAPTURE_WORKSPACE_MUST_PERSIST 16u /* the caller's workspace must outlive the graph */

/* The claim gate's question: would the op run with this? No data is touched. */
typedef struct attn_query_desc {
  uint32_t struct_size;
  uint32_t flags;            /* none in this version */
  const attn_arg* inputs;    /* tensors without data; shape -1 = any */
  const attn_arg* outputs;   /* the outputs wanted; a tensor may be null where its shape follows.
                              Required outputs count as wanted without being listed. */
  const attn_alias* aliases; /* outputs that are to share an input's memory */
  uint32_t input_count;      /* of `inputs` */
  uint32_t output_count;     /* of `outputs` */
  uint32_t alias_count;      /* of `aliases` */
  uint32_t reserved;
  const char* engine; /* forced engine, null = any */
} attn_query_desc;

/* The claim gate's answer. */
typedef struct attn_support {
  uint32_t struct_size;
  uint32_t supported;     /* 1 or 0 */
  uint32_t capture_flags; /* ATTN_CAPTURE_... */
  attn_status status;     /* what prepare would return */
  char reason[1000];      /* argument, what came, what is accepted; empty when supported */
} attn_support;

#define ATTN_PREPARE_BATCH_INVARIANT 1u /* a sequence's result does not depend on its batch */
#define ATTN_PREPARE_ALLOW_TF32 2u      /* float32 products may be rounded to TF32 */
#define ATTN_PREPARE_CHECK_ON_HOST 4u   /* lengths on the device are checked by the host: slow */

/* What to plan for. attn_binding_prepare takes the bound tensors and ignores none of the rest. */
typedef struct attn_prepare_desc {
  uint32_t struct_size;
  uint32_t flags;            /* ATTN_PREPARE_... */
  const attn_arg* inputs;    /* attn_op_prepare only; data may be null */
  const attn_arg* outputs;   /* as in attn_query_desc; where a size depends on a value that is not
                                there, the plan counts with what the other tensors make */
  const attn_alias* aliases; /* for tensors without data; with data the addresses tell */
  uint32_t input_count;      /* of `inputs` */
  uint32_t output_count;     /* of `outputs` */
  uint32_t alias_count;      /* of `aliases` */
  uint32_t reserved;
  const char* engine; /* forced by name in the stage that has it, null = the context's choice */
  int64_t max_batch;  /* the range that the plan serves; 0 = what the tensors have */
  int64_t max_query_length; /* new tokens of one sequence */
  int64_t max_total_length; /* keys of one sequence */
} attn_prepare_desc;

/* Facts of a plan. */
typedef struct attn_plan_info {
  uint32_t struct_size;
  uint32_t capture_flags;       /* ATTN_CAPTURE_... */
  uint64_t workspace_bytes;     /* scratch of one execute, whoever gives it */
  uint64_t workspace_alignment; /* of attn_execute_desc.workspace, in bytes */
  int64_t max_batch;            /* the range that the plan serves */
  int64_t max_query_length;     /* new tokens of one sequence */
  int64_t max_total_length;     /* keys of one sequence */
  uint32_t baked_slot_count;    /* host inputs whose values a capture would fix */
  uint32_t reserved;
  uint32_t baked_slots[16]; /* their slots */
  char reason[512];         /* why it cannot be captured, or what a capture fixes */
} attn_plan_info;

#define ATTN_EXECUTE_PREPARE 1u          /* binding: prepare when no plan fits, outside capture */
#define ATTN_EXECUTE_BAKE_HOST_VALUES 2u /* capture may fix lengths that lie in host memory */
/* CUDA: the caller knows that `stream` is not being captured and that the context's CUDA context is
 * current in this thread. The driver is asked neither; it gets the launches and no other call. */
#define ATTN_EXECUTE_EAGER 4u

/* How to run. Workspace must hold until the execution has ended on its stream. */
typedef struct attn_execute_desc {
  uint32_t struct_size;
  uint32_t flags;           /* ATTN_EXECUTE_... */
  void* stream;             /* CUDA: a CUstream of the context, null = the legacy default stream */
  void* workspace;          /* scratch in memory of the context's device, null = the session's */
  uint64_t workspace_bytes; /* at least attn_plan_info.workspace_bytes */
} attn_execute_desc;

/* Options of a session. */
typedef struct attn_session_desc {
  uint32_t struct_size;
  uint32_t flags;    /* none in this version */
  const char* label; /* for messages, may be null */
} attn_session_desc;

/* ---- Faults ---------------------------------------------------------------------------------- */

/* Bits of a device fault: lengths in device memory that break a rule. */
#define ATTN_FAULT_TOTAL_OVERFLOW 1u /* total overflows int32 */
#define ATTN_FAULT_PAST_NEGATIVE 2u  /* total is shorter than the new keys */
#define ATTN_FAULT_QUERY_START 4u    /* total is shorter than the new queries */
#define ATTN_FAULT_PAST_BEYOND 8u    /* past reaches beyond the past buffer */
#define ATTN_FAULT_TOTAL_BEYOND 16u  /* total reaches beyond the present capacity */
#define ATTN_FAULT_POSITION 32u      /* a position lies outside the rotary table */
#define ATTN_FAULT_TOTAL_BOUND 64u   /* total exceeds total_sequence_length */
#define ATTN_FAULT_VALID_LENGTH 128u /* a valid length lies outside [0, L] */
#define ATTN_FAULT_CUMULATIVE 256u   /* cumulative lengths not ascending, or beyond the tokens */
#define ATTN_FAULT_BLOCK 512u        /* a block id lies outside the pool */
#define ATTN_FAULT_WRITE_INDEX 1024u /* a write index lies outside the cache */

/* The first fault of a session. bits 0: none. */
typedef struct attn_fault_info {
  uint32_t struct_size;
  uint32_t bits;   /* all ATTN_FAULT_... raised since the last clear */
  int64_t batch;   /* of the first fault */
  int64_t value;   /* that broke the rule */
  char label[128]; /* of the first fault's op */
  char text[512];  /* the rules in words, joined with "; " */
} attn_fault_info;

/* ---- Functions ------------------------------------------------------------------------------- */

/* Any of these may fail with ATTN_INVALID_ARGUMENT (a handle, pointer or struct that is not legal),
 * ATTN_OUT_OF_MEMORY and ATTN_INTERNAL; what else there is stands at each. What fails makes no
 * object and fills no struct but the error. An object that is made comes with one reference, which
 * its release function gives back. */

struct attn_api;

/* The library's version, "major.minor.patch". Never fails, never changes. Threads: any. */
ATTN_EXPORT const char* attn_version(void);

/* The ABI that the library was built with, like ATTN_ABI_VERSION. Never fails. Threads: any. */
ATTN_EXPORT uint32_t attn_abi_version(void);

/* The table of all functions. `minimum_abi` is the lowest ABI that the client needs: the same major
 * number and a minor number not above the library's, else ATTN_VERSION with both in the message.
 * The table is static. Threads: any. */
ATTN_EXPORT attn_status attn_get_api(uint32_t minimum_abi, const struct attn_api** table,
                                     attn_error* error);

/* The number of devices that attn_device_get_info knows, devices that cannot be used included: the
 * CPU is number 0. Makes no CUDA context. Threads: any. */
ATTN_EXPORT attn_status attn_device_count(uint32_t* count, attn_error* error);

/* Device number `index`, 0 to count - 1. Threads: any. */
ATTN_EXPORT attn_status attn_device_get_info(uint32_t index, attn_device_info* info,
                                             attn_error* error);

/* The number of operators. Threads: any. */
ATTN_EXPORT attn_status attn_operator_count(uint32_t* count, attn_error* error);

/* Operator number `index`. Threads: any. */
ATTN_EXPORT attn_status attn_operator_get_info(uint32_t index, attn_operator_info* info,
                                               attn_error* error);

/* Input number `position` (of input_count) of operator number `index`. Threads: any. */
ATTN_EXPORT attn_status attn_operator_get_input(uint32_t index, uint32_t position,
                                                attn_slot_info* info, attn_error* error);

/* Output number `position` (of output_count) of operator number `index`. Threads: any. */
ATTN_EXPORT attn_status attn_operator_get_output(uint32_t index, uint32_t position,
                                                 attn_slot_info* info, attn_error* error);

/* Attribute number `position` (of attribute_count) of operator number `index`. Threads: any. */
ATTN_EXPORT attn_status attn_operator_get_attribute(uint32_t index, uint32_t position,
                                                    attn_attribute_info* info, attn_error* error);

/* The rules behind fault bits in words, joined with "; "; empty for 0. Threads: any. */
ATTN_EXPORT attn_status attn_fault_text(uint32_t bits, char* buffer, size_t capacity,
                                        size_t* needed, attn_error* error);

/* Opens a device. `desc` may be null: the CPU with defaults. ATTN_UNAVAILABLE where the device
 * cannot be used, naming every path that was tried; ATTN_UNSUPPORTED for a SIMD level that this
 * machine lacks. Threads: any. */
ATTN_EXPORT attn_status attn_context_create(const attn_context_desc* desc, attn_context** context,
                                            attn_error* error);
/* Gives the caller's reference back; ops, sessions, plans and bindings keep the context alive.
 * Threads: any. */
ATTN_EXPORT void attn_context_release(attn_context* context);

/* What the context runs on. Threads: any. */
ATTN_EXPORT attn_status attn_context_get_info(attn_context* context, attn_context_info* info,
                                              attn_error* error);

/* Counters. Threads: any; each counter is exact, together they are no snapshot. */
ATTN_EXPORT attn_status attn_context_get_stats(attn_context* context, attn_context_stats* stats,
                                               attn_error* error);

/* Frees cached plans that nobody holds and scratch of idle sessions that no graph uses.
 * Threads: any. */
ATTN_EXPORT attn_status attn_context_trim(attn_context* context, attn_error* error);

/* Creates an operator: checks name, version and every attribute. ATTN_UNSUPPORTED for an operator
 * or a legal attribute value that is not built; keeps the context. Threads: any. */
ATTN_EXPORT attn_status attn_op_create(attn_context* context, const attn_op_desc* desc,
                                       attn_op** op, attn_error* error);
/* Gives the caller's reference back; plans and bindings keep the op alive. Threads: any. */
ATTN_EXPORT void attn_op_release(attn_op* op);

/* The claim gate: whether the op would run. A "no" is a success of this function. What it accepts,
 * prepare accepts; what it refuses, prepare refuses for the same reason. Threads: any. */
ATTN_EXPORT attn_status attn_op_query(attn_op* op, const attn_query_desc* desc,
                                      attn_support* support, attn_error* error);

/* Type, shape and row-major strides of the output in `slot` for these inputs (data is read only of
 * host inputs that decide a shape; without it, or on the device, the size is -1 and
 * *depends_on_value becomes 1). Threads: any. */
ATTN_EXPORT attn_status attn_op_infer_output(attn_op* op, const attn_arg* inputs,
                                             uint32_t input_count, uint32_t slot,
                                             attn_tensor* output, uint32_t* depends_on_value,
                                             attn_error* error);

/* Plans the op for a shape class; equal classes of equal ops share one plan. Keeps the op.
 * ATTN_UNSUPPORTED where no engine serves it, or the forced one does not, with each engine's
 * reason; ATTN_UNAVAILABLE and ATTN_COMPILE where a kernel cannot be had. Threads: any. */
ATTN_EXPORT attn_status attn_op_prepare(attn_op* op, const attn_prepare_desc* desc,
                                        attn_plan** plan, attn_error* error);
/* Gives the caller's reference back. Threads: any. */
ATTN_EXPORT void attn_plan_release(attn_plan* plan);

/* Workspace, capture facts and the range that the plan serves. Threads: any. */
ATTN_EXPORT attn_status attn_plan_get_info(attn_plan* plan, attn_plan_info* info,
                                           attn_error* error);

/* JSON text for people and logs: sizes, engines considered and refused with reasons, kernels,
 * workspace, expected flops and bytes. Carries its own schema number. Threads: any. */
ATTN_EXPORT attn_status attn_plan_describe(attn_plan* plan, char* buffer, size_t capacity,
                                           size_t* needed, attn_error* error);

/* Runs the plan on these tensors, whose memory must live until the execution has ended. `desc` may
 * be null. CPU: returns when done. CUDA: returns when launched. Lengths in host memory are checked
 * before anything is written (ATTN_INVALID_ARGUMENT). ATTN_NOT_PREPARED (ATTN_CAPTURE while the
 * stream captures), with what differs in words, when the tensors do not fit the plan;
 * ATTN_UNSUPPORTED when a forced engine does not take these shapes; ATTN_DEVICE from the driver.
 * Allocates nothing, but for session scratch that has to grow. Threads: any for the plan, one at a
 * time for the session (ATTN_BUSY otherwise). */
ATTN_EXPORT attn_status attn_plan_execute(attn_plan* plan, attn_session* session,
                                          const attn_arg* inputs, uint32_t input_count,
                                          const attn_arg* outputs, uint32_t output_count,
                                          const attn_execute_desc* desc, attn_error* error);

/* Creates an order of executions; keeps the context. `desc` may be null. Threads: any. */
ATTN_EXPORT attn_status attn_session_create(attn_context* context, const attn_session_desc* desc,
                                            attn_session** session, attn_error* error);
/* Gives the caller's reference back; bindings keep the session alive. Threads: any. */
ATTN_EXPORT void attn_session_release(attn_session* session);

/* The faults that reached the host so far, without synchronising: synchronise the stream first for
 * a final answer. The CPU has none: its lengths are checked by execute. Threads: any. */
ATTN_EXPORT attn_status attn_session_poll_faults(attn_session* session, attn_fault_info* info,
                                                 attn_error* error);

/* Ends a poisoning, in the order of `stream`; on the CPU there is nothing to end. Threads: one at a
 * time. */
ATTN_EXPORT attn_status attn_session_clear_faults(attn_session* session, void* stream,
                                                  attn_error* error);

/* Ties an op to a session; keeps both. Both must be of one context. Threads: any. */
ATTN_EXPORT attn_status attn_binding_create(attn_op* op, attn_session* session,
                                            attn_binding** binding, attn_error* error);
/* Gives the caller's reference back. Threads: any. */
ATTN_EXPORT void attn_binding_release(attn_binding* binding);

/* Binds one input or output; a null tensor unbinds. The tensor's memory must live until the last
 * execute that uses it has ended. Rules that tensors keep among each other are checked by prepare
 * and execute. Threads: one at a time. */
ATTN_EXPORT attn_status attn_binding_set_input(attn_binding* binding, uint32_t slot,
                                               const attn_tensor* tensor, attn_error* error);
ATTN_EXPORT attn_status attn_binding_set_output(attn_binding* binding, uint32_t slot,
                                                const attn_tensor* tensor, attn_error* error);

/* Replaces all bindings at once. On failure the old ones stay. Threads: one at a time. */
ATTN_EXPORT attn_status attn_binding_set_tensors(attn_binding* binding, const attn_arg* inputs,
                                                 uint32_t input_count, const attn_arg* outputs,
                                                 uint32_t output_count, attn_error* error);

/* Finds or makes the plan for what is bound; statuses of attn_op_prepare. `desc` may be null; its
 * inputs, outputs and aliases must be empty. Threads: one at a time. */
ATTN_EXPORT attn_status attn_binding_prepare(attn_binding* binding, const attn_prepare_desc* desc,
                                             attn_error* error);

/* Runs what is bound; `desc` may be null. As attn_plan_execute; with ATTN_EXECUTE_PREPARE it plans,
 * outside a capture, when no plan fits. Threads: one at a time for the binding and for its session.
 */
ATTN_EXPORT attn_status attn_binding_execute(attn_binding* binding, const attn_execute_desc* desc,
                                             attn_error* error);

/* As attn_plan_get_info for the binding's plan; ATTN_CAPTURE_NEEDS_PREPARE and the reason where
 * there is none yet. Threads: one at a time. */
ATTN_EXPORT attn_status attn_binding_capture_support(attn_binding* binding, attn_plan_info* info,
                                                     attn_error* error);

/* As attn_plan_describe. ATTN_NOT_PREPARED without a plan. Threads: one at a time. */
ATTN_EXPORT attn_status attn_binding_describe(attn_binding* binding, char* buffer, size_t capacity,
                                              size_t* needed, attn_error* error);

/* ---- Table ----------------------------------------------------------------------------------- */

/* All functions above, for clients that open the library at run time. Only appended to: a member
 * exists in a table whose struct_size reaches beyond it. */
typedef struct attn_api {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* (*version)(void);
  attn_status (*device_count)(uint32_t*, attn_error*);
  attn_status (*device_get_info)(uint32_t, attn_device_info*, attn_error*);
  attn_status (*operator_count)(uint32_t*, attn_error*);
  attn_status (*operator_get_info)(uint32_t, attn_operator_info*, attn_error*);
  attn_status (*operator_get_input)(uint32_t, uint32_t, attn_slot_info*, attn_error*);
  attn_status (*operator_get_output)(uint32_t, uint32_t, attn_slot_info*, attn_error*);
  attn_status (*operator_get_attribute)(uint32_t, uint32_t, attn_attribute_info*, attn_error*);
  attn_status (*fault_text)(uint32_t, char*, size_t, size_t*, attn_error*);
  attn_status (*context_create)(const attn_context_desc*, attn_context**, attn_error*);
  void (*context_release)(attn_context*);
  attn_status (*context_get_info)(attn_context*, attn_context_info*, attn_error*);
  attn_status (*context_get_stats)(attn_context*, attn_context_stats*, attn_error*);
  attn_status (*context_trim)(attn_context*, attn_error*);
  attn_status (*op_create)(attn_context*, const attn_op_desc*, attn_op**, attn_error*);
  void (*op_release)(attn_op*);
  attn_status (*op_query)(attn_op*, const attn_query_desc*, attn_support*, attn_error*);
  attn_status (*op_infer_output)(attn_op*, const attn_arg*, uint32_t, uint32_t, attn_tensor*,
                                 uint32_t*, attn_error*);
  attn_status (*op_prepare)(attn_op*, const attn_prepare_desc*, attn_plan**, attn_error*);
  void (*plan_release)(attn_plan*);
  attn_status (*plan_get_info)(attn_plan*, attn_plan_info*, attn_error*);
  attn_status (*plan_describe)(attn_plan*, char*, size_t, size_t*, attn_error*);
  attn_status (*plan_execute)(attn_plan*, attn_session*, const attn_arg*, uint32_t, const attn_arg*,
                              uint32_t, const attn_execute_desc*, attn_error*);
  attn_status (*session_create)(attn_context*, const attn_session_desc*, attn_session**,
                                attn_error*);
  void (*session_release)(attn_session*);
  attn_status (*session_poll_faults)(attn_session*, attn_fault_info*, attn_error*);
  attn_status (*session_clear_faults)(attn_session*, void*, attn_error*);
  attn_status (*binding_create)(attn_op*, attn_session*, attn_binding**, attn_error*);
  void (*binding_release)(attn_binding*);
  attn_status (*binding_set_input)(attn_binding*, uint32_t, const attn_tensor*, attn_error*);
  attn_status (*binding_set_output)(attn_binding*, uint32_t, const attn_tensor*, attn_error*);
  attn_status (*binding_set_tensors)(attn_binding*, const attn_arg*, uint32_t, const attn_arg*,
                                     uint32_t, attn_error*);
  attn_status (*binding_prepare)(attn_binding*, const attn_prepare_desc*, attn_error*);
  attn_status (*binding_execute)(attn_binding*, const attn_execute_desc*, attn_error*);
  attn_status (*binding_capture_support)(attn_binding*, attn_plan_info*, attn_error*);
  attn_status (*binding_describe)(attn_binding*, char*, size_t, size_t*, attn_error*);
} attn_api;

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---- Initialisers ---------------------------------------------------------------------------- */

/* `attn_tensor t = ATTN_TENSOR_INIT;` zeroes the struct and sets its size, in C and in C++. */
#ifdef __cplusplus
extern "C++" {
template <class T>
inline T attn_init() {
  T value = T();
  value.struct_size = static_cast<uint32_t>(sizeof(T));
  return value;
}
}
#define ATTN_INIT(type) attn_init<type>()
#else
#define ATTN_INIT(type) {.struct_size = (uint32_t)sizeof(type)}
#endif
#define ATTN_ERROR_INIT ATTN_INIT(attn_error)
#define ATTN_TENSOR_INIT ATTN_INIT(attn_tensor)
#define ATTN_ALLOCATOR_INIT ATTN_INIT(attn_allocator)
#define ATTN_LOGGER_INIT ATTN_INIT(attn_logger)
#define ATTN_EXECUTOR_INIT ATTN_INIT(attn_executor)
#define ATTN_DEVICE_INFO_INIT ATTN_INIT(attn_device_info)
#define ATTN_CONTEXT_DESC_INIT ATTN_INIT(attn_context_desc)
#define ATTN_CONTEXT_INFO_INIT ATTN_INIT(attn_context_info)
#define ATTN_CONTEXT_STATS_INIT ATTN_INIT(attn_context_stats)
#define ATTN_OPERATOR_INFO_INIT ATTN_INIT(attn_operator_info)
#define ATTN_SLOT_INFO_INIT ATTN_INIT(attn_slot_info)
#define ATTN_ATTRIBUTE_INFO_INIT ATTN_INIT(attn_attribute_info)
#define ATTN_OP_DESC_INIT ATTN_INIT(attn_op_desc)
#define ATTN_QUERY_DESC_INIT ATTN_INIT(attn_query_desc)
#define ATTN_SUPPORT_INIT ATTN_INIT(attn_support)
#define ATTN_PREPARE_DESC_INIT ATTN_INIT(attn_prepare_desc)
#define ATTN_PLAN_INFO_INIT ATTN_INIT(attn_plan_info)
#define ATTN_EXECUTE_DESC_INIT ATTN_INIT(attn_execute_desc)
#define ATTN_SESSION_DESC_INIT ATTN_INIT(attn_session_desc)
#define ATTN_FAULT_INFO_INIT ATTN_INIT(attn_fault_info)

#endif /* ATTN_C_H_ */
