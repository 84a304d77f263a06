/* Reads recorded attention layers: a manifest of plain lines and raw float32 files. */
#ifndef ATTN_EXAMPLE_RECORDING_H_
#define ATTN_EXAMPLE_RECORDING_H_

#include <stddef.h>
#include <stdint.h>

#define RECORDING_MAX_ATTRIBUTES 8
#define RECORDING_MAX_RANK 3

/* Row-major float32 numbers. */
typedef struct RecordedTensor {
  int32_t rank;
  int64_t shape[RECORDING_MAX_RANK];
  float* data;
} RecordedTensor;

/* One attention node of a model with what went in and what came out (tests/data/README.md). */
typedef struct RecordedLayer {
  int64_t number; /* in the model */
  int32_t attribute_count;
  struct {
    char name[32];
    int64_t value;
  } attributes[RECORDING_MAX_ATTRIBUTES];
  int64_t head_size;
  double rope_base;
  RecordedTensor query;       /* (rows, num_heads * head_size) */
  RecordedTensor key;         /* (rows, kv_num_heads * head_size) */
  RecordedTensor value;       /* (rows, kv_num_heads * head_size) */
  RecordedTensor output;      /* (rows, num_heads * head_size) */
  RecordedTensor present_key; /* (kv_num_heads, rows, head_size) */
} RecordedLayer;

typedef struct Recording {
  RecordedLayer* layers;
  size_t count;
} Recording;

/* Reads `folder`/manifest.txt and every file that it names. Returns 0, or -1 after printing to
 * stderr what is wrong. Free it in both cases. */
int recording_load(const char* folder, Recording* self);
void recording_free(Recording* self);

/* An integer attribute of the node; 0 where the manifest has none. */
int64_t recorded_attribute(const RecordedLayer* layer, const char* name);

#endif
