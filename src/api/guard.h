// The boundary: exceptions stop here and become a status and a message.
#pragma once

#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "attn_c.h"
#include "core/error.h"
#include "core/float_environment.h"

namespace attn::api {

// What a call is about, set in front of its message: "GroupQueryAttention 'layer3'".
class Subject {
 public:
  void set(std::string_view view) { view_ = view; }  // must outlive the call
  void own(std::string text) {
    owned_ = std::move(text);
    view_ = owned_;
  }
  std::string_view view() const { return view_; }

  // Keeps a counted object until the call is over, its message included: its handle may be released
  // meanwhile, by another thread or a callback. At most two.
  template <class T>
  void keep(T& object) {
    object.retain();
    kept_[kept_count_++] = {&object, [](void* kept) { static_cast<T*>(kept)->unref(); }};
  }

  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() {
    while (kept_count_ > 0) {
      const Kept& last = kept_[--kept_count_];
      last.drop(last.object);
    }
  }

 private:
  struct Kept {
    void* object;
    void (*drop)(void*);
  };
  std::string owned_;
  std::string_view view_;
  Kept kept_[2];
  int kept_count_ = 0;
};

// Writes `status` alone. Null and sizes that cannot be right are left alone.
void report_success(attn_error* error) noexcept;

// Fills the caller's error as far as its struct_size goes: "<subject>: <message>", cut at a
// character's end, with ATTN_ERROR_TRUNCATED if it did not fit.
void report_failure(attn_error* error, attn_status status, std::string_view subject,
                    std::string_view message, const NativeError& native = {}) noexcept;

// Runs the body of an exported function, under the library's floating-point modes: attributes are
// rounded and bounds compared there too, which must neither depend on the caller's modes nor trap.
// `body` takes nothing, or the call's Subject&.
template <class Body>
attn_status guard(attn_error* error, Body&& body) noexcept {
  const FloatEnvironment environment;
  Subject subject;
  attn_status status = ATTN_INTERNAL;
  try {
    if constexpr (std::is_invocable_v<Body, Subject&>) {
      body(subject);
    } else {
      body();
    }
    report_success(error);
    return ATTN_OK;
  } catch (const Error& failure) {
    status = failure.status();
    report_failure(error, status, subject.view(), failure.message(), failure.native());
  } catch (const std::bad_alloc&) {
    status = ATTN_OUT_OF_MEMORY;
    report_failure(error, status, subject.view(), "not enough host memory");
  } catch (const std::exception& failure) {
    report_failure(error, status, subject.view(), failure.what());
  } catch (...) {
    report_failure(error, status, subject.view(), "an unknown exception reached the boundary");
  }
  return status;
}

}  // namespace attn::api
