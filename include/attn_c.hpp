/* attn_c for C++17: the C interface of attn_c.h with handles that release themselves, exceptions
 * instead of statuses, and containers instead of pointers and counts. Header only; it calls nothing
 * but the C functions, so that a program may be compiled by another compiler than the library, and
 * run with a newer one.
 *
 * What each function does, its errors and its rules for threads stand in attn_c.h, at the C
 * function of the same name. Additions of this header:
 *   Failures   Every failure of a C function is thrown as attn_c::Error: as the class derived from
 *              it that its status has, or as itself where a newer library has a status more. What
 *              this header refuses itself is an InvalidArgument, or a std::length_error where it
 *              is a list's length.
 *   Lifetime   Handles own one reference and move; one that was moved from, or was made by default,
 *              is empty and may only be assigned to, destroyed or asked. The library keeps what an
 *              object needs, so handles may go away in any order.
 *   Tensors    Describe memory of the caller, which must live until the last execution that uses it
 *              has ended. Nothing here allocates or copies elements.
 */
#ifndef ATTN_C_HPP_
#define ATTN_C_HPP_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attn_c.h"

namespace attn_c {

// ---- Errors -------------------------------------------------------------------------------------

/* A call that failed; what() is the library's message. */
class Error : public std::runtime_error {
 public:
  /* From what a C function filled. */
  explicit Error(const attn_error& error)
      : std::runtime_error(error.message),
        status_(error.status),
        native_code_(error.native_code),
        native_domain_(error.native_domain),
        flags_(error.flags) {}

  /* ATTN_..., of attn_c.h. */
  attn_status status() const noexcept { return status_; }
  /* The driver's, the compiler's or the system's code; 0 is none. */
  int64_t native_code() const noexcept { return native_code_; }
  /* Whose code that is, ATTN_DOMAIN_... */
  uint32_t native_domain() const noexcept { return native_domain_; }
  /* The device context is lost: retrying cannot help. */
  bool sticky() const noexcept { return (flags_ & ATTN_ERROR_STICKY) != 0; }

 private:
  attn_status status_;
  int64_t native_code_;
  uint32_t native_domain_;
  uint32_t flags_;
};

/* The caller's mistake. */
struct InvalidArgument : Error {
  using Error::Error;
};
/* A legal request that no engine serves. */
struct Unsupported : Error {
  using Error::Error;
};
/* An ABI or a struct that is newer than the library, or a table that is not what it says. */
struct VersionMismatch : Error {
  using Error::Error;
};
/* No driver, device or compiler library. */
struct Unavailable : Error {
  using Error::Error;
};
/* No plan fits the call: prepare first. */
struct NotPrepared : Error {
  using Error::Error;
};
/* Not possible while the stream captures. */
struct CaptureRefused : Error {
  using Error::Error;
};
/* A one-at-a-time object is in use elsewhere. */
struct Busy : Error {
  using Error::Error;
};
/* Memory of the host or the device could not be had. */
struct OutOfMemory : Error {
  using Error::Error;
};
/* A kernel did not compile. */
struct CompileFailed : Error {
  using Error::Error;
};
/* The driver or the device reported an error. */
struct DeviceFailed : Error {
  using Error::Error;
};
/* The session is poisoned. */
struct Fault : Error {
  using Error::Error;
};
/* A defect of the library. */
struct Internal : Error {
  using Error::Error;
};

namespace detail {

[[noreturn]] inline void raise(const attn_error& error) {
  switch (error.status) {
    case ATTN_INVALID_ARGUMENT:
      throw InvalidArgument(error);
    case ATTN_UNSUPPORTED:
      throw Unsupported(error);
    case ATTN_VERSION:
      throw VersionMismatch(error);
    case ATTN_UNAVAILABLE:
      throw Unavailable(error);
    case ATTN_NOT_PREPARED:
      throw NotPrepared(error);
    case ATTN_CAPTURE:
      throw CaptureRefused(error);
    case ATTN_BUSY:
      throw Busy(error);
    case ATTN_OUT_OF_MEMORY:
      throw OutOfMemory(error);
    case ATTN_COMPILE:
      throw CompileFailed(error);
    case ATTN_DEVICE:
      throw DeviceFailed(error);
    case ATTN_FAULT:
      throw Fault(error);
    case ATTN_INTERNAL:
      throw Internal(error);
    default:
      throw Error(error);
  }
}

/* What is wrong before the library is asked. */
[[noreturn]] inline void refuse(attn_status status, const std::string& words) {
  attn_error error = attn_init<attn_error>();
  error.status = status;
  words.copy(error.message, sizeof error.message - 1);
  raise(error);
}

/* Calls call(attn_error*) and throws what it reports. */
template <class Call>
void check(Call&& call) {
  attn_error error;
  error.struct_size = sizeof error;
  error.message[0] = '\0';
  if (call(&error) != ATTN_OK) raise(error);
}

/* Fills a struct of the library's by call(T*, attn_error*). */
template <class T, class Call>
T filled(Call&& call) {
  T value = attn_init<T>();
  check([&](attn_error* error) { return call(&value, error); });
  return value;
}

/* A text by the two-call rule; it may grow between the calls. */
template <class Call>
std::string text(Call&& call) {
  std::string value;
  size_t needed = 256;
  while (value.size() < needed) {
    value.resize(needed);
    check([&](attn_error* error) { return call(&value[0], value.size(), &needed, error); });
  }
  value.resize(needed > 0 ? needed - 1 : 0);
  return value;
}

/* A text as C has it, which ends at the first zero byte: one that goes on is refused, not cut. */
inline const char* c_text(const std::string& text, const char* what) {
  if (text.find('\0') != std::string::npos) {
    refuse(ATTN_INVALID_ARGUMENT, std::string(what) + " contains a zero byte: " + text.c_str());
  }
  return text.c_str();
}

/* Null for an empty text, which the library reads as the default. */
inline const char* or_null(const std::string& text, const char* what) {
  return text.empty() ? nullptr : c_text(text, what);
}

/* A table of functions that a library gave for an ABI: of its major number, not older, and at least
 * as long as this header's where all of that was asked for. */
template <class Table>
const Table& checked_table(const Table* table, uint32_t minimum_abi, uint32_t header_abi) {
  constexpr size_t kHead = 2 * sizeof(uint32_t);
  const size_t needed = minimum_abi < header_abi ? kHead : sizeof(Table);
  const uint32_t has = table != nullptr ? table->abi_version : 0;
  const size_t size = table != nullptr ? table->struct_size : 0;
  if (size < needed || has >> 16 != minimum_abi >> 16 || has < minimum_abi) {
    const auto words = [](uint32_t abi) {
      return std::to_string(abi >> 16) + "." + std::to_string(abi & 0xffffu);
    };
    refuse(ATTN_VERSION, "asked for the ABI " + words(minimum_abi) +
                             ", the library gave a table of " + std::to_string(size) +
                             " bytes of " + words(has) + "; needed are " + std::to_string(needed) +
                             " bytes and the same major number");
  }
  return *table;
}

/* One reference of a C object, given back by `Release`. */
template <class T, void (*Release)(T*)>
class Handle {
 public:
  Handle() = default;
  /* Takes one reference over. */
  explicit Handle(T* owned) noexcept : handle_(owned) {}
  /* The C handle, for functions of attn_c.h; null when empty. */
  T* get() const noexcept { return handle_.get(); }
  /* Whether there is an object. */
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /* Gives the C handle to the caller, who must release it. */
  T* release() noexcept { return handle_.release(); }
  /* Gives the reference back now. */
  void reset() noexcept { handle_.reset(); }

 protected:
  /* Makes an object by call(T**, attn_error*). */
  template <class Call>
  static T* create(Call&& call) {
    T* made = nullptr;
    check([&](attn_error* error) { return call(&made, error); });
    return made;
  }

 private:
  struct Deleter {
    void operator()(T* handle) const noexcept { Release(handle); }
  };
  std::unique_ptr<T, Deleter> handle_;
};

}  // namespace detail

// ---- Tensors ------------------------------------------------------------------------------------

/* Element types; those of C++ by type_of<T>(). */
constexpr attn_dtype kFloat16 = {ATTN_DTYPE_FLOAT, 16, 1};
constexpr attn_dtype kBfloat16 = {ATTN_DTYPE_BFLOAT, 16, 1};
constexpr attn_dtype kFloat32 = {ATTN_DTYPE_FLOAT, 32, 1};
constexpr attn_dtype kFloat64 = {ATTN_DTYPE_FLOAT, 64, 1};
constexpr attn_dtype kInt32 = {ATTN_DTYPE_INT, 32, 1};
constexpr attn_dtype kInt64 = {ATTN_DTYPE_INT, 64, 1};
constexpr attn_dtype kBool = {ATTN_DTYPE_BOOL, 8, 1};

/* The element type of an arithmetic type of C++. */
template <class T>
constexpr attn_dtype type_of() {
  using Element = std::remove_cv_t<T>;
  static_assert(std::is_arithmetic_v<Element>, "name the element type, kFloat16 for example");
  if (std::is_same_v<Element, bool>) return kBool;
  constexpr uint8_t code = std::is_floating_point_v<Element> ? ATTN_DTYPE_FLOAT
                           : std::is_signed_v<Element>       ? ATTN_DTYPE_INT
                                                             : ATTN_DTYPE_UINT;
  return {code, static_cast<uint8_t>(8 * sizeof(Element)), 1};
}

/* A description of a tensor: an attn_tensor that is easily made. */
class Tensor : public attn_tensor {
 public:
  /* Without data: a shape for queries and inference, where -1 is any extent. Throws
   * std::length_error beyond ATTN_MAX_RANK axes. */
  Tensor(attn_dtype type, const std::vector<int64_t>& sizes, std::nullptr_t = nullptr)
      : attn_tensor(attn_init<attn_tensor>()) {
    if (sizes.size() > ATTN_MAX_RANK) throw std::length_error("attn_c: too many axes");
    dtype = type;
    ndim = static_cast<int32_t>(sizes.size());
    for (size_t axis = 0; axis < sizes.size(); ++axis) shape[axis] = sizes[axis];
  }
  /* Row-major without gaps; a null pointer is a tensor without data. Throws std::length_error where
   * strides would exceed 63 bits. */
  Tensor(attn_dtype type, const std::vector<int64_t>& sizes, void* memory) : Tensor(type, sizes) {
    if (memory == nullptr) return;
    data = memory;
    device_type = ATTN_DEVICE_CPU;
    flags = ATTN_TENSOR_BROADCAST; /* strides are always stated */
    int64_t stride = 1;
    for (size_t axis = sizes.size(); axis-- > 0;) {
      strides[axis] = stride;
      if (sizes[axis] <= 1) continue; /* the library refuses negative ones */
      if (stride > (std::numeric_limits<int64_t>::max)() / sizes[axis]) {
        throw std::length_error("attn_c: more than 2^63 elements");
      }
      stride *= sizes[axis];
    }
  }
  /* Memory that is only read: it may not be bound as an output. */
  Tensor(attn_dtype type, const std::vector<int64_t>& sizes, const void* memory)
      : Tensor(type, sizes, const_cast<void*>(memory)) {
    flags |= ATTN_TENSOR_READ_ONLY;
  }
  /* Host memory of a type of C++; of a constant one it is only read. */
  template <class T>
  Tensor(T* memory, const std::vector<int64_t>& sizes) : Tensor(type_of<T>(), sizes, memory) {}
  /* One number. */
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit Tensor(T* number) : Tensor(type_of<T>(), {}, number) {}

  /* Elements between neighbours of each axis, one number an axis. */
  Tensor& with_strides(const std::vector<int64_t>& steps) {
    if (steps.size() != static_cast<size_t>(ndim)) {
      throw std::length_error("attn_c: a stride for each axis");
    }
    for (size_t axis = 0; axis < steps.size(); ++axis) strides[axis] = steps[axis];
    flags |= ATTN_TENSOR_BROADCAST;
    return *this;
  }
  /* ATTN_DEVICE_... and the number of the device. */
  Tensor& on(int32_t type, int32_t id = 0) {
    device_type = type;
    device_id = id;
    return *this;
  }
  /* Element (0, ...) lies so many bytes behind data. */
  Tensor& at_byte(uint64_t offset) {
    byte_offset = offset;
    return *this;
  }
  /* The bytes behind data, which strides are then checked against. */
  Tensor& of_bytes(uint64_t bytes) {
    data_bytes = bytes;
    return *this;
  }
  /* It may not be bound as an output. */
  Tensor& read_only() {
    flags |= ATTN_TENSOR_READ_ONLY;
    return *this;
  }
};

/* Tensors by slot. Slots are the standard's indices, or ATTN_SLOT_EXTENSION and up. */
class Arguments {
 public:
  Arguments() = default;
  /* Slots with their tensors. */
  Arguments(std::initializer_list<std::pair<uint32_t, Tensor>> tensors) {
    for (const auto& [slot, tensor] : tensors) add(slot, tensor);
  }
  Arguments(Arguments&&) noexcept = default;
  Arguments& operator=(Arguments&&) noexcept = default;
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /* One more; the description is copied. */
  Arguments& add(uint32_t slot, const attn_tensor& tensor) {
    tensors_.push_back(tensor);
    list_.push_back({slot, 0, &tensors_.back()});
    return *this;
  }
  /* An output that is wanted, whose shape follows: for queries and plans. */
  Arguments& want(uint32_t slot) {
    list_.push_back({slot, 0, nullptr});
    return *this;
  }
  /* As C functions take them; valid until the next add or want. */
  const attn_arg* data() const noexcept { return list_.data(); }
  /* Their number. */
  uint32_t size() const noexcept { return static_cast<uint32_t>(list_.size()); }

 private:
  std::deque<attn_tensor> tensors_;
  std::vector<attn_arg> list_;
};

/* Attributes of an operator by name. */
class Attributes {
 public:
  Attributes() = default;
  Attributes(Attributes&&) noexcept = default;
  Attributes& operator=(Attributes&&) noexcept = default;
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  /* INT, of any integer; those beyond int64_t are refused. */
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Attributes& set(std::string_view name, T value) {
    const int64_t number = integer(name, value);
    add(name, ATTN_ATTRIBUTE_INT).i = number;
    return *this;
  }
  /* FLOAT */
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  Attributes& set(std::string_view name, T value) {
    add(name, ATTN_ATTRIBUTE_FLOAT).f = static_cast<double>(value);
    return *this;
  }
  /* STRING */
  Attributes& set(std::string_view name, std::string_view value) {
    const std::string& kept = texts_.emplace_back(value);
    return keep(add(name, ATTN_ATTRIBUTE_STRING), kept);
  }
  /* STRING, terminated; a null pointer is refused. */
  Attributes& set(std::string_view name, const char* value) {
    if (value == nullptr) {
      detail::refuse(ATTN_INVALID_ARGUMENT,
                     "attribute " + std::string(name) + ": the text is null");
    }
    return set(name, std::string_view(value));
  }
  /* INTS of integers, FLOATS (float each) of floating-point numbers. */
  template <class T>
  Attributes& set(std::string_view name, const std::vector<T>& values) {
    return set_list(name, values);
  }
  /* The same, written in place. */
  template <class T>
  Attributes& set(std::string_view name, std::initializer_list<T> values) {
    return set_list(name, values);
  }
  /* For attn_op_desc; valid until the next set. */
  const attn_attribute* data() const noexcept { return list_.data(); }
  /* Their number. */
  uint32_t size() const noexcept { return static_cast<uint32_t>(list_.size()); }

 private:
  attn_attribute& add(std::string_view name, uint32_t type) {
    const std::string& kept = texts_.emplace_back(name);
    list_.push_back({detail::c_text(kept, "an attribute's name"), type, 0, 0, 0, nullptr});
    return list_.back();
  }
  template <class T>
  static int64_t integer(std::string_view name, T value) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t)) {
      if (value > static_cast<T>((std::numeric_limits<int64_t>::max)())) {
        detail::refuse(ATTN_INVALID_ARGUMENT, "attribute " + std::string(name) + ": " +
                                                  std::to_string(value) + " is beyond 2^63 - 1");
      }
    }
    return static_cast<int64_t>(value);
  }
  template <class Values>
  Attributes& set_list(std::string_view name, const Values& values) {
    using T = typename Values::value_type;
    static_assert(std::is_arithmetic_v<T>, "lists are of integers or of floating-point numbers");
    if constexpr (std::is_integral_v<T>) {
      std::vector<int64_t> kept;
      kept.reserve(values.size());
      for (const T value : values) kept.push_back(integer(name, value));
      return keep(add(name, ATTN_ATTRIBUTE_INTS), integers_.emplace_back(std::move(kept)));
    } else {
      std::vector<float> kept;
      kept.reserve(values.size());
      for (const T value : values) kept.push_back(static_cast<float>(value));
      return keep(add(name, ATTN_ATTRIBUTE_FLOATS), numbers_.emplace_back(std::move(kept)));
    }
  }
  template <class Values>
  Attributes& keep(attn_attribute& attribute, const Values& values) {
    attribute.data = values.data();
    attribute.count = static_cast<uint32_t>(values.size());
    return *this;
  }

  /* Deques, because growing them moves nothing that the attributes point to. */
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<float>> numbers_;
  std::vector<attn_attribute> list_;
};

}  // namespace attn_c

#include "attn_c_objects.hpp"

#endif /* ATTN_C_HPP_ */
