#include "ops/views.h"

#include "core/error.h"

namespace attn {

void fail_stride(const char* name, int64_t stride) {
  fail_argument(name, ": expected strides that stay within memory; the last axis has stride ",
                stride);
}

}  // namespace attn
