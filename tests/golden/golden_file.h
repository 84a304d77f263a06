/* Golden cases for runners in C and C++: reading a case, checking what a call made of it. The calls
 * themselves are the runner's. docs/golden-cases.md has the format. */
#ifndef ATTN_GOLDEN_FILE_H_
#define ATTN_GOLDEN_FILE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of a call, aligned to 64 bytes, and a copy of what it held before. */
typedef struct golden_block {
  unsigned char* data;
  unsigned char* before;
  size_t bytes;
} golden_block;

typedef struct golden_attribute {
  const char* name;
  const char* kind; /* "int", "float" or "string" */
  int64_t i;
  double f;
  const char* text;
} golden_attribute;

/* A tensor: `code` and `bits` are DLPack's, strides count elements. */
typedef struct golden_argument {
  uint32_t slot;
  uint8_t code;
  uint8_t bits;
  int32_t ndim;
  int64_t shape[8];
  int64_t strides[8];
  const golden_block* block;
  uint64_t byte_offset;
} golden_argument;

/* What an output must hold: bytes, or float64 values with a bound for each row and one for all. */
typedef struct golden_result {
  const golden_argument* output;
  const unsigned char* bytes; /* null: values */
  const double* values;
  const double* bounds; /* rows + 1 */
  int64_t row_length;
  int64_t rows;
} golden_result;

typedef struct golden_case {
  const char* name;
  const char *domain, *type, *label;
  int32_t version;
  int by_plan;
  const char* engine; /* null: the library chooses */
  int64_t max_batch, max_query_length, max_total_length;
  golden_attribute attributes[24];
  golden_block blocks[24];
  golden_argument inputs[24], outputs[8];
  golden_result results[8];
  uint32_t attribute_count, block_count, input_count, output_count, result_count;
  int32_t error_status; /* 0: the call must succeed */
  const char* error_message;
  void* json; /* owns the texts */
  unsigned char* data;
} golden_case;

/* Names of the cases in a folder, ascending, each to be freed as the list is; the number of them,
 * or -1. */
int golden_names(const char* folder, char*** names);

/* Reads a case; null where it cannot be read, which is said on standard output. */
golden_case* golden_read(const char* folder, const char* name);
void golden_free(golden_case* c);

/* Compares what a call returned and left in memory with what is expected. 1 where all is right;
 * otherwise `report` says what is wrong. */
int golden_check(const golden_case* c, int32_t status, const char* message, char* report,
                 size_t capacity);

/* FNV-1a, 64 bits, of all memory blocks in order, and of the message where there is one. */
uint64_t golden_digest(const golden_case* c, const char* message);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_GOLDEN_FILE_H_ */
