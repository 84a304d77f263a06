// Handles: the objects behind the opaque pointers of attn_c.h.
//
// Every object begins with a kind word. It is checked on entry and overwritten by release, so that
// a null handle, one of another kind and one that was released while something still keeps the
// object are refused in words. Objects count their references: the caller's handle is one, every
// object that needs this one holds another, and the last to go destroys it on its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"

namespace attn::api {

enum class ObjectKind : uint64_t {
  kContext = 0x6174746e2e637478,  // "attn.ctx"
  kSession = 0x6174746e2e736573,  // "attn.ses"
  kOp = 0x6174746e2e6f7000,       // "attn.op"
  kPlan = 0x6174746e2e706c6e,     // "attn.pln"
  kBinding = 0x6174746e2e626e64,  // "attn.bnd"
  kGraph = 0x6174746e2e677261,    // "attn.gra"
  kReleased = 0x6174746e2e656e64  // "attn.end"
};

// Base of every object. It has no virtual function, so that the kind word is what a handle points
// at. `T` is the final type.
template <class T, ObjectKind kKindOfT>
class Object {
 public:
  static constexpr ObjectKind kKind = kKindOfT;

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete static_cast<T*>(this);
  }

  // Ends the caller's handle: from here on it is refused, and its reference is given back. Of
  // several releases at once, one does so.
  void end_handle() {
    auto live = static_cast<uint64_t>(kKindOfT);
    if (kind_.compare_exchange_strong(live, static_cast<uint64_t>(ObjectKind::kReleased),
                                      std::memory_order_relaxed)) {
      unref();
    }
  }

 protected:
  ~Object() = default;

 private:
  std::atomic<uint64_t> kind_{static_cast<uint64_t>(kKindOfT)};
  std::atomic<uint32_t> references_{1};  // the handle's own
};

// A counted reference of one object to another.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T& object) : object_(&object) { object.retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->unref();
  }
  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

// The kind word behind a handle that may be anything non-null and aligned. Read at once, since a
// release on another thread may write it.
inline ObjectKind kind_of(const void* handle) {
  using Word [[gnu::may_alias]] = uint64_t;
  return static_cast<ObjectKind>(
      __atomic_load_n(static_cast<const Word*>(handle), __ATOMIC_RELAXED));
}

inline bool aligned_as_handle(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle) % alignof(std::max_align_t) == 0;
}

[[noreturn]] void fail_handle(const void* handle, const char* name, ObjectKind expected);

// The object behind `handle`. Throws INVALID_ARGUMENT, calling the parameter `name`.
template <class T>
T& checked(T* handle, const char* name) {
  if (handle == nullptr || !aligned_as_handle(handle) || kind_of(handle) != T::kKind) {
    fail_handle(handle, name, T::kKind);
  }
  return *handle;
}

// What every release function does: null, and what is not a live handle of the kind, is left alone.
template <class T>
void release_handle(T* handle) noexcept {
  if (handle == nullptr || !aligned_as_handle(handle) || kind_of(handle) != T::kKind) return;
  handle->end_handle();
}

// The one-at-a-time rule of sessions and bindings: held for one call, or BUSY. Maintenance
// (trim) is no call: it keeps out of a busy object's way, and a call that meets it waits the moment
// that it takes instead of being refused.
class BusyFlag {
 public:
  bool try_enter() {
    for (;;) {
      int state = kFree;
      if (state_.compare_exchange_weak(state, kCall, std::memory_order_acquire)) return true;
      if (state == kCall) return false;
      if (state == kMaintenance) std::this_thread::yield();
    }
  }
  bool try_maintain() {
    int state = kFree;
    return state_.compare_exchange_strong(state, kMaintenance, std::memory_order_acquire);
  }
  void leave() { state_.store(kFree, std::memory_order_release); }

 private:
  enum : int { kFree, kCall, kMaintenance };
  std::atomic<int> state_{kFree};
};

class BusyGuard {
 public:
  // Throws BUSY, calling the object `name` and its label, when another call is inside.
  BusyGuard(BusyFlag& flag, const char* name, std::string_view label = {}) : flag_(flag) {
    if (!flag.try_enter()) fail_busy(name, label);
  }
  ~BusyGuard() { flag_.leave(); }
  BusyGuard(const BusyGuard&) = delete;
  BusyGuard& operator=(const BusyGuard&) = delete;

 private:
  [[noreturn]] static void fail_busy(const char* name, std::string_view label);
  BusyFlag& flag_;
};

}  // namespace attn::api
