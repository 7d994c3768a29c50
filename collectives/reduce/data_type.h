// DataType and ReduceOp: what the elements are and how two of them are combined. Values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace neuron {

enum class DataType : std::uint8_t { bytes, float32, bfloat16, int32, int64 };
enum class ReduceOp : std::uint8_t { sum, average, minimum, maximum };

[[nodiscard]] std::string_view name_of(DataType type);
[[nodiscard]] std::string_view name_of(ReduceOp op);
[[nodiscard]] constexpr std::size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::bytes:
      return 1;
    case DataType::bfloat16:
      return 2;
    case DataType::float32:
    case DataType::int32:
      return 4;
    case DataType::int64:
      return 8;
  }
  return 1;
}

}  // namespace neuron
