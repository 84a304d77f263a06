#include "api/handle.h"

namespace attn::api {
namespace {

const char* name_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kContext:
      return "context";
    case ObjectKind::kSession:
      return "session";
    case ObjectKind::kOp:
      return "op";
    case ObjectKind::kPlan:
      return "plan";
    case ObjectKind::kBinding:
      return "binding";
    case ObjectKind::kGraph:
      return "graph";
    case ObjectKind::kReleased:
      break;
  }
  return nullptr;
}

}  // namespace

void fail_handle(const void* handle, const char* name, ObjectKind expected) {
  if (handle == nullptr) fail_argument(name, " is null; a ", name_of(expected), " is needed");
  if (!aligned_as_handle(handle)) {
    fail_argument(name, " is no handle of this library; a ", name_of(expected), " is needed");
  }
  const ObjectKind kind = kind_of(handle);
  if (kind == ObjectKind::kReleased) fail_argument(name, " was released already");
  const char* other = name_of(kind);
  if (other == nullptr) {
    fail_argument(name, " is no live handle of this library; a ", name_of(expected), " is needed");
  }
  fail_argument(name, " is a ", other, "; a ", name_of(expected), " is needed");
}

void BusyGuard::fail_busy(const char* name) {
  throw_error(ATTN_BUSY, cat(name, " is in use by another call; one call at a time may use it"));
}

}  // namespace attn::api
