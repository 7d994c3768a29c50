// Status and Result: errors as values below the c10d border.
// Values; any thread. An ok Status holds no memory. Whoever first knows which error it is writes the message, callers
// pass it on.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace neuron {

enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // the caller's mistake; nothing was started
  unsupported,       // a combination that this version does not do
  timeout,           // a deadline passed
  peer_lost,         // a process died or cannot be reached
  mismatch,          // ranks issued different operations
  aborted,           // the user or another rank ended the group
  unavailable,       // a resource or service is missing on this machine
  refused,           // a peer or stranger was turned away
  internal,          // a defect in this library
};

[[nodiscard]] std::string_view name_of(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : detail_(std::make_shared<const Detail>(Detail{code, std::move(message)})) {}

  [[nodiscard]] bool is_ok() const { return detail_ == nullptr; }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] Code code() const { return detail_ ? detail_->code : Code::ok; }
  [[nodiscard]] const std::string& message() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Detail {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Detail> detail_;
};

/// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace neuron
