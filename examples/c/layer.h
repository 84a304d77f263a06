/* One recorded attention layer on a device: its memory, its operator, and the two calls that the
 * example makes of it, a prompt of several tokens and a step of one. */
#ifndef ATTN_EXAMPLE_LAYER_H_
#define ATTN_EXAMPLE_LAYER_H_

#include "numbers.h"
#include "plugin.h"
#include "recording.h"

/* Device memory of a layer. */
enum {
  kQuery, /* all recorded rows, as a model's projections would leave them */
  kKey,
  kValue,
  kOutput,    /* all rows */
  kStepQuery, /* one row each, at addresses that stay the same: what a captured step reads */
  kStepKey,
  kStepValue,
  kStepOutput,
  kKeyCache, /* (1, kv heads, capacity, head size), past and present at once */
  kValueCache,
  kCos, /* float32 (capacity, head size / 2) */
  kSin,
  kLength, /* int32: valid keys of the sequence - 1 */
  kBufferCount
};

/* The tensors of one call, with the lists that the library takes. Not to be copied: the lists point
 * into it. */
typedef struct CallArgs {
  attn_tensor tensors[12];
  attn_arg inputs[9];
  attn_arg outputs[3];
  uint32_t input_count;
  uint32_t output_count;
} CallArgs;

typedef struct Layer {
  const Plugin* plugin;
  attn_context* context;
  const RecordedLayer* recorded;
  const ElementType* type;
  int64_t rows;        /* recorded tokens */
  int64_t prompt_rows; /* of them, run at once */
  int64_t capacity;    /* rows of the caches */
  int64_t heads, kv_heads, head_size;
  int32_t device_type, device_id;
  int32_t bound; /* total_sequence_length: an upper bound, so the capacity serves every call */
  attn_op* op;
  attn_session* session;
  void* stream;
  struct {
    void* data;
    uint64_t bytes;
  } buffers[kBufferCount];
  CallArgs prompt;
  CallArgs step;
} Layer;

/* What a run left behind, copied to the host, in the layer's type. */
typedef struct Outcome {
  unsigned char* output; /* (rows, heads * head size) */
  unsigned char* keys;   /* (kv heads, capacity, head size) */
  unsigned char* values;
} Outcome;

/* Makes the operator, fills the memory and describes the calls. The first `prompt_rows` rows will
 * be the prompt. Returns 0, or -1 after printing; close it in both cases. */
int layer_open(Layer* self, const Plugin* library, attn_context* context,
               const RecordedLayer* recorded, const ElementType* type, int64_t prompt_rows);
void layer_close(Layer* self);

/* Asks whether the step would run, before any memory is bound. */
int layer_query(const Layer* self, attn_support* support);

/* The memory's part of layer_open: buffers, then recorded rows and rotary tables in them. */
int layer_allocate(Layer* self);
int layer_fill(Layer* self);

/* Fills outputs and caches with NaN: what is not written shows, and what lies beyond the valid rows
 * of a cache must not matter. */
int layer_poison(Layer* self);

/* Sets the number of tokens that the sequence has once the next call has appended its own. */
int layer_set_length(Layer* self, int64_t total);

/* Copies row `row` to where the step reads it, and the step's output to row `row` of kOutput. */
int layer_load_step(Layer* self, int64_t row);
int layer_store_step(Layer* self, int64_t row);

/* Copies results to the host, after waiting for the device. */
int layer_collect(Layer* self, Outcome* out);
void outcome_free(Outcome* out);

#endif
