#include "api/handle.h"

namespace attn::api {
namespace {

const char* words_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kContext:
      return "a context";
    case ObjectKind::kSession:
      return "a session";
    case ObjectKind::kOp:
      return "an op";
    case ObjectKind::kPlan:
      return "a plan";
    case ObjectKind::kBinding:
      return "a binding";
    case ObjectKind::kGraph:
      return "a graph";
    case ObjectKind::kReleased:
      break;
  }
  return nullptr;
}

}  // namespace

void fail_handle(const void* handle, const char* name, ObjectKind expected) {
  if (handle == nullptr) fail_argument(name, " is null; ", words_of(expected), " is needed");
  if (!aligned_as_handle(handle)) {
    fail_argument(name, " is no handle of this library; ", words_of(expected), " is needed");
  }
  const ObjectKind kind = kind_of(handle);
  if (kind == ObjectKind::kReleased) fail_argument(name, " was released already");
  const char* other = words_of(kind);
  if (other == nullptr) {
    fail_argument(name, " is no live handle of this library; ", words_of(expected), " is needed");
  }
  fail_argument(name, " is ", other, "; ", words_of(expected), " is needed");
}

void BusyGuard::fail_busy(const char* name, std::string_view label) {
  const std::string title = label.empty() ? std::string(name) : cat(name, " '", label, "'");
  throw_error(ATTN_BUSY, cat(title, " is in use by another call; one call at a time may use it"));
}

}  // namespace attn::api
