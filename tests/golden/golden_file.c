#include "golden_file.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char* read_file(const char* folder, const char* name, const char* suffix,
                                size_t* size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  const long length = ftell(file);
  unsigned char* data =
      length < 0 || fseek(file, 0, SEEK_SET) != 0 ? NULL : malloc((size_t)length + 1);
  if (data != NULL && fread(data, 1, (size_t)length, file) == (size_t)length) {
    data[length] = 0;
    *size = (size_t)length;
  } else {
    free(data);
    data = NULL;
  }
  fclose(file);
  return data;
}

static int compare_names(const void* a, const void* b) {
  return strcmp(*(char* const*)a, *(char* const*)b);
}

int golden_names(const char* folder, char*** names) {
  DIR* directory = opendir(folder);
  int count = 0;
  *names = NULL;
  if (directory == NULL) return -1;
  /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of its own */
  for (const struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    const size_t length = strlen(entry->d_name);
    if (length <= 5 || strcmp(entry->d_name + length - 5, ".json") != 0) continue;
    *names = (char**)realloc((void*)*names, ((size_t)count + 1) * sizeof **names);
    (*names)[count] = strdup(entry->d_name);
    (*names)[count++][length - 5] = 0;
  }
  closedir(directory);
  if (count > 0) qsort((void*)*names, (size_t)count, sizeof **names, compare_names);
  return count;
}

/* Integers of cases are below 2^53, which a double holds. */
static int64_t integer(const cJSON* object, const char* name) {
  const cJSON* item = cJSON_GetObjectItemCaseSensitive(object, name);
  return item == NULL ? 0 : (int64_t)item->valuedouble;
}

static const char* text(const cJSON* object, const char* name) {
  return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const cJSON* items(const cJSON* object, const char* name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static int read_list(const cJSON* list, int64_t* values) {
  int count = 0;
  const cJSON* item;
  cJSON_ArrayForEach(item, list) values[count++] = (int64_t)item->valuedouble;
  return count;
}

static void read_attributes(golden_case* c) {
  const cJSON* item;
  cJSON_ArrayForEach(item, items(c->json, "attributes")) {
    golden_attribute* attribute = &c->attributes[c->attribute_count++];
    attribute->name = text(item, "name");
    attribute->kind = text(item, "kind");
    attribute->i = integer(item, "value");
    attribute->f = items(item, "value")->valuedouble;
    attribute->text = text(item, "value");
  }
}

static void read_memory(golden_case* c) {
  const cJSON* item;
  cJSON_ArrayForEach(item, items(c->json, "memory")) {
    golden_block* block = &c->blocks[c->block_count++];
    const cJSON* fill = items(item, "fill");
    block->bytes = (size_t)integer(item, "bytes");
    void* memory = NULL;
    if (posix_memalign(&memory, 64, block->bytes + 1) != 0) abort();
    block->data = memory;
    block->before = malloc(block->bytes + 1);
    if (fill != NULL) {
      memset(block->data, (int)fill->valuedouble, block->bytes);
    } else {
      memcpy(block->data, c->data + integer(item, "offset"), block->bytes);
    }
    memcpy(block->before, block->data, block->bytes);
  }
}

static uint32_t read_arguments(golden_case* c, const char* name, golden_argument* arguments) {
  uint32_t count = 0;
  const cJSON* item;
  cJSON_ArrayForEach(item, items(c->json, name)) {
    golden_argument* argument = &arguments[count++];
    argument->slot = (uint32_t)integer(item, "slot");
    argument->code = (uint8_t)integer(item, "code");
    argument->bits = (uint8_t)integer(item, "bits");
    argument->ndim = read_list(items(item, "shape"), argument->shape);
    read_list(items(item, "strides"), argument->strides);
    argument->block = &c->blocks[integer(item, "memory")];
    argument->byte_offset = (uint64_t)integer(item, "byte_offset");
  }
  return count;
}

static const golden_argument* output_of(const golden_case* c, uint32_t slot) {
  for (uint32_t i = 0; i < c->output_count; ++i) {
    if (c->outputs[i].slot == slot) return &c->outputs[i];
  }
  return NULL;
}

static void read_results(golden_case* c) {
  const cJSON* item;
  cJSON_ArrayForEach(item, items(c->json, "results")) {
    golden_result* result = &c->results[c->result_count++];
    const cJSON *bytes = items(item, "bytes"), *values = items(item, "values"),
                *bounds = items(item, "bounds");
    result->output = output_of(c, (uint32_t)integer(item, "slot"));
    if (bytes != NULL) {
      result->bytes = c->data + integer(bytes, "offset");
      continue;
    }
    result->values = (const double*)(const void*)(c->data + integer(values, "offset"));
    result->bounds = (const double*)(const void*)(c->data + integer(bounds, "offset"));
    result->row_length = integer(item, "row");
    result->rows = integer(bounds, "count") - 1;
  }
}

golden_case* golden_read(const char* folder, const char* name) {
  size_t size = 0;
  golden_case* c = calloc(1, sizeof *c);
  char* json = (char*)read_file(folder, name, ".json", &size);
  c->data = read_file(folder, name, ".bin", &size);
  c->json = json == NULL ? NULL : cJSON_Parse(json);
  free(json);
  if (c->json == NULL || c->data == NULL || integer(c->json, "format") != 1) {
    printf("cannot read the case %s in %s\n", name, folder);
    golden_free(c);
    return NULL;
  }
  const cJSON* op = items(c->json, "operator");
  const cJSON* range = items(c->json, "range");
  const cJSON* error = items(c->json, "error");
  c->name = text(c->json, "name");
  c->domain = text(op, "domain");
  c->type = text(op, "type");
  c->label = text(op, "label");
  c->version = (int32_t)integer(op, "version");
  c->by_plan = strcmp(text(c->json, "call"), "plan") == 0;
  c->engine = text(c->json, "engine");
  c->max_batch = integer(range, "max_batch");
  c->max_query_length = integer(range, "max_query_length");
  c->max_total_length = integer(range, "max_total_length");
  c->error_status = error == NULL ? 0 : (int32_t)integer(error, "status");
  c->error_message = error == NULL ? NULL : text(error, "message");
  read_attributes(c);
  read_memory(c);
  c->input_count = read_arguments(c, "inputs", c->inputs);
  c->output_count = read_arguments(c, "outputs", c->outputs);
  read_results(c);
  return c;
}

void golden_free(golden_case* c) {
  if (c == NULL) return;
  for (uint32_t i = 0; i < c->block_count; ++i) {
    free(c->blocks[i].data);
    free(c->blocks[i].before);
  }
  cJSON_Delete(c->json);
  free(c->data);
  free(c);
}
