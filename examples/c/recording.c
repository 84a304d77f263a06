/* Reads recorded attention layers: a manifest of plain lines and raw float32 files. */
#include "recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE 100000 /* of one dimension: far more than a recording has */

int64_t recorded_attribute(const RecordedLayer* layer, const char* name) {
  for (int32_t i = 0; i < layer->attribute_count; ++i) {
    if (strcmp(layer->attributes[i].name, name) == 0) return layer->attributes[i].value;
  }
  return 0;
}

static int complain(const char* folder, const char* what, const char* detail) {
  fprintf(stderr, "recording %s: %s: %s\n", folder, what, detail);
  return -1;
}

static RecordedTensor* find_tensor(RecordedLayer* layer, const char* name) {
  if (strcmp(name, "query") == 0) return &layer->query;
  if (strcmp(name, "key") == 0) return &layer->key;
  if (strcmp(name, "value") == 0) return &layer->value;
  if (strcmp(name, "output") == 0) return &layer->output;
  if (strcmp(name, "present_key") == 0) return &layer->present_key;
  return NULL;
}

/* "37x576" into shape and rank; the number of elements, or -1. */
static int64_t parse_shape(const char* text, RecordedTensor* tensor) {
  int64_t elements = 1;
  for (tensor->rank = 0; tensor->rank < RECORDING_MAX_RANK; ++tensor->rank) {
    char* end = NULL;
    long long extent = strtoll(text, &end, 10);
    if (end == text || extent < 1 || extent > MAX_SIZE) return -1;
    tensor->shape[tensor->rank] = extent;
    elements *= extent;
    if (*end == '\0') {
      ++tensor->rank;
      return elements;
    }
    if (*end != 'x') return -1;
    text = end + 1;
  }
  return -1;
}

/* The files are little-endian; put together byte by byte they are right on any machine. */
static int read_floats(const char* folder, const char* file, int64_t elements, float** data) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE* stream = fopen(path, "rb");
  if (stream == NULL) return complain(folder, "cannot open", file);
  const size_t bytes = (size_t)elements * 4;
  unsigned char* raw = malloc(bytes + 1);
  *data = malloc(bytes);
  /* Asking for one byte more than there should be finds files that are too long. */
  const int good = raw != NULL && *data != NULL && fread(raw, 1, bytes + 1, stream) == bytes;
  fclose(stream);
  for (int64_t i = 0; good && i < elements; ++i) {
    const unsigned char* b = raw + 4 * i;
    const uint32_t bits =
        (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    memcpy(*data + i, &bits, sizeof bits);
  }
  free(raw);
  return good ? 0 : complain(folder, "not of the manifest's size", file);
}

static int read_tensor_line(const char* folder, const char* line, RecordedLayer* layer) {
  char name[32], type[32], shape[64], file[128];
  if (sscanf(line, "tensor %31s %31s %63s %127s", name, type, shape, file) != 4) {
    return complain(folder, "not a tensor line", line);
  }
  RecordedTensor* tensor = find_tensor(layer, name);
  if (tensor == NULL || tensor->data != NULL) return complain(folder, "unexpected tensor", line);
  if (strcmp(type, "float32") != 0) return complain(folder, "not float32", line);
  const int64_t elements = parse_shape(shape, tensor);
  if (elements < 0) return complain(folder, "not a shape", line);
  return read_floats(folder, file, elements, &tensor->data);
}

static int has_shape(const RecordedTensor* tensor, int32_t rank, int64_t a, int64_t b, int64_t c) {
  return tensor->data != NULL && tensor->rank == rank && tensor->shape[0] == a &&
         tensor->shape[1] == b && (rank < 3 || tensor->shape[2] == c);
}

static int is_size(int64_t value) { return value >= 1 && value <= MAX_SIZE; }

/* What the rest of the program relies on. */
static int check_layer(const char* folder, const RecordedLayer* layer) {
  const int64_t rows = layer->query.shape[0];
  const int64_t heads = recorded_attribute(layer, "num_heads");
  const int64_t kv_heads = recorded_attribute(layer, "kv_num_heads");
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)layer->number);
  if (!is_size(heads) || !is_size(kv_heads) || !is_size(layer->head_size)) {
    return complain(folder, "num_heads, kv_num_heads and head_size must be given in layer", number);
  }
  const int64_t width = heads * layer->head_size;
  const int64_t kv_width = kv_heads * layer->head_size;
  if (layer->head_size % 2 != 0 || !(layer->rope_base > 0) ||
      !has_shape(&layer->query, 2, rows, width, 0) ||
      !has_shape(&layer->key, 2, rows, kv_width, 0) ||
      !has_shape(&layer->value, 2, rows, kv_width, 0) ||
      !has_shape(&layer->output, 2, rows, width, 0) ||
      !has_shape(&layer->present_key, 3, kv_heads, rows, layer->head_size)) {
    return complain(folder, "tensors, attributes and facts do not fit together in layer", number);
  }
  return 0;
}

static int add_layer(Recording* self, int64_t number) {
  RecordedLayer* grown = realloc(self->layers, (self->count + 1) * sizeof *grown);
  if (grown == NULL) return -1;
  self->layers = grown;
  memset(&grown[self->count], 0, sizeof *grown);
  grown[self->count++].number = number;
  return 0;
}

static int read_line(const char* folder, const char* line, Recording* self, int* open) {
  RecordedLayer* layer = *open ? &self->layers[self->count - 1] : NULL;
  long long integer = 0;
  char name[32];
  if (line[0] == '#' || line[strspn(line, " ")] == '\0') return 0;
  if (!*open) {
    if (sscanf(line, "layer %lld", &integer) != 1) return complain(folder, "not a layer", line);
    *open = 1;
    return add_layer(self, integer);
  }
  if (strcmp(line, "end") == 0) {
    *open = 0;
    return check_layer(folder, layer);
  }
  if (strncmp(line, "tensor ", 7) == 0) return read_tensor_line(folder, line, layer);
  if (sscanf(line, "attribute %31s int %lld", name, &integer) == 2 &&
      layer->attribute_count < RECORDING_MAX_ATTRIBUTES) {
    const int32_t i = layer->attribute_count++;
    memcpy(layer->attributes[i].name, name, sizeof name);
    layer->attributes[i].value = integer;
    return 0;
  }
  if (sscanf(line, "fact head_size %lld", &integer) == 1) {
    layer->head_size = integer;
    return 0;
  }
  if (sscanf(line, "fact rope_base %lf", &layer->rope_base) == 1) return 0;
  return complain(folder, "unknown line", line);
}

int recording_load(const char* folder, Recording* self) {
  memset(self, 0, sizeof *self);
  char line[512];
  snprintf(line, sizeof line, "%s/manifest.txt", folder);
  FILE* stream = fopen(line, "r");
  if (stream == NULL) return complain(folder, "cannot open", "manifest.txt");
  int status = 0;
  int open = 0;
  while (status == 0 && fgets(line, sizeof line, stream) != NULL) {
    line[strcspn(line, "\r\n")] = '\0';
    status = read_line(folder, line, self, &open);
  }
  fclose(stream);
  if (status == 0 && (open || self->count == 0)) {
    status = complain(folder, "incomplete", "manifest.txt");
  }
  return status;
}

void recording_free(Recording* self) {
  for (size_t i = 0; i < self->count; ++i) {
    RecordedLayer* layer = &self->layers[i];
    free(layer->query.data);
    free(layer->key.data);
    free(layer->value.data);
    free(layer->output.data);
    free(layer->present_key.data);
  }
  free(self->layers);
  memset(self, 0, sizeof *self);
}
