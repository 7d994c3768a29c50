// Decoder and Encoder: the one place where bytes from outside become values, and back.
// Values over a span that they do not own. Little endian. Decoder never reads past the end: after the first short read
// `is_ok()` is false and every later read returns zeros, so a caller checks once, at the end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace neuron {

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_integral_v<T>);
    T value{};
    if (rest_.size() < sizeof value) return fail(value);
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }

  /// `length` bytes, a view into the input.
  std::span<const std::byte> bytes(std::size_t length) {
    if (rest_.size() < length) return fail(std::span<const std::byte>{});
    const auto taken = rest_.first(length);
    rest_ = rest_.subspan(length);
    return taken;
  }

  /// A string preceded by its u32 length.
  std::string text() {
    const auto raw = bytes(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

  [[nodiscard]] bool is_ok() const { return ok_; }
  [[nodiscard]] bool is_finished() const { return ok_ && rest_.empty(); }

 private:
  template <typename T>
  T fail(T value) {
    ok_ = false;
    rest_ = {};
    return value;
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

class Encoder {
 public:
  template <typename T>
  Encoder& number(T value) {
    static_assert(std::is_integral_v<T>);
    return bytes(std::as_bytes(std::span(&value, 1)));
  }
  Encoder& bytes(std::span<const std::byte> raw) {
    if (raw.empty()) return *this;
    const std::size_t before = out_.size();
    out_.resize(before + raw.size());  // insert() of a range draws a false warning from GCC 12
    std::memcpy(out_.data() + before, raw.data(), raw.size());
    return *this;
  }
  Encoder& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    return bytes(std::as_bytes(std::span(value.data(), value.size())));
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

}  // namespace neuron
