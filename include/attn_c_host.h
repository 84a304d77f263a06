/* attn_c host help: memory, streams and graphs for programs that bring none of their own.
 *
 * A second table with a version of its own, because a back end may lack any of it. The CPU back end
 * has memory; its streams are null handles (execution is synchronous) and it has no graphs
 * (ATTN_UNSUPPORTED). Conventions are those of attn_c.h. Nothing in attn_c.h needs this header.
 */
#ifndef ATTN_C_HOST_H_
#define ATTN_C_HOST_H_

#include "attn_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As ATTN_ABI_VERSION, of this header's table. */
#define ATTN_HOST_ABI_VERSION 0x00000001u

/* An instantiated graph of captured executions; threads: one at a time. */
typedef struct attn_host_graph attn_host_graph;

struct attn_host_api;

/* The table of host help; as attn_get_api. Threads: any. */
ATTN_EXPORT attn_status attn_host_get_api(uint32_t minimum_abi, const struct attn_host_api** table,
                                          attn_error* error);

/* Allocates `bytes` (0 is legal) of one ATTN_MEMORY_... kind on the context's device, aligned to at
 * least 256 bytes, with arbitrary content. Kinds that the back end lacks: the CPU gives host memory
 * for each, so that a program can be written once. Free it with the same context. Threads: any. */
ATTN_EXPORT attn_status attn_host_memory_alloc(attn_context* context, uint32_t kind, uint64_t bytes,
                                               void** memory, attn_error* error);

/* Frees memory of attn_host_memory_alloc; null is legal. CUDA: waits for the device.
 * Threads: any. */
ATTN_EXPORT attn_status attn_host_memory_free(attn_context* context, uint32_t kind, void* memory,
                                              attn_error* error);

/* Copies `bytes` between any two memories of the context or the host, in the order of `stream`.
 * The ranges may not overlap. Threads: any. */
ATTN_EXPORT attn_status attn_host_memory_copy(attn_context* context, void* target,
                                              const void* source, uint64_t bytes, void* stream,
                                              attn_error* error);

/* Creates a stream for attn_execute_desc.stream. The CPU gives null. Threads: any. */
ATTN_EXPORT attn_status attn_host_stream_create(attn_context* context, void** stream,
                                                attn_error* error);

/* Waits until everything in the stream has ended. Threads: any. */
ATTN_EXPORT attn_status attn_host_stream_synchronize(attn_context* context, void* stream,
                                                     attn_error* error);

/* Releases a stream after what is in it has ended. Threads: any. */
ATTN_EXPORT attn_status attn_host_stream_release(attn_context* context, void* stream,
                                                 attn_error* error);

/* Begins to capture what is launched in the stream. Threads: one at a time for the stream. */
ATTN_EXPORT attn_status attn_host_graph_begin_capture(attn_context* context, void* stream,
                                                      attn_error* error);

/* Ends the capture and makes a graph that can be launched. Keeps the context. Threads: as above. */
ATTN_EXPORT attn_status attn_host_graph_end_capture(attn_context* context, void* stream,
                                                    attn_host_graph** graph, attn_error* error);

/* Launches the graph in the stream; the memory that it captured must still be there. Threads: one
 * at a time for the graph. */
ATTN_EXPORT attn_status attn_host_graph_launch(attn_host_graph* graph, void* stream,
                                               attn_error* error);
/* Gives the graph back; null is legal. Threads: any. */
ATTN_EXPORT void attn_host_graph_release(attn_host_graph* graph);

/* All functions above. Only appended to. */
typedef struct attn_host_api {
  uint32_t struct_size;
  uint32_t abi_version;
  attn_status (*host_memory_alloc)(attn_context*, uint32_t, uint64_t, void**, attn_error*);
  attn_status (*host_memory_free)(attn_context*, uint32_t, void*, attn_error*);
  attn_status (*host_memory_copy)(attn_context*, void*, const void*, uint64_t, void*, attn_error*);
  attn_status (*host_stream_create)(attn_context*, void**, attn_error*);
  attn_status (*host_stream_synchronize)(attn_context*, void*, attn_error*);
  attn_status (*host_stream_release)(attn_context*, void*, attn_error*);
  attn_status (*host_graph_begin_capture)(attn_context*, void*, attn_error*);
  attn_status (*host_graph_end_capture)(attn_context*, void*, attn_host_graph**, attn_error*);
  attn_status (*host_graph_launch)(attn_host_graph*, void*, attn_error*);
  void (*host_graph_release)(attn_host_graph*);
} attn_host_api;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTN_C_HOST_H_ */
