// Every supported type and op, any number of operands, any alignment, in place: against a plain reference.
#include "collectives/reduce/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "collectives/reduce/kernels.h"
#include "transport/base/random.h"

namespace neuron {
namespace {

using Bytes = std::vector<std::byte>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Rounds to nearest, ties to even, by comparing the two neighbours.
std::uint16_t to_bfloat16(float value) {
  if (std::isnan(value)) return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) >> 16) | 0x40U);
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const std::uint32_t rest = std::bit_cast<std::uint32_t>(value) & 0xFFFFU;
  const bool is_up = rest > 0x8000U || (rest == 0x8000U && (below & 1U) == 1);
  return static_cast<std::uint16_t>(below + (is_up ? 1 : 0));
}

template <typename T>
Bytes bytes_of_values(const std::vector<T>& values, std::size_t offset = 0) {
  Bytes bytes(offset + values.size() * sizeof(T));
  std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
  return bytes;
}

template <typename T>
std::vector<T> reduce_values(const std::vector<std::vector<T>>& operands, DataType type, ReduceOp op,
                             double scale = 1.0) {
  std::vector<Bytes> memory;
  std::vector<const std::byte*> pointers;
  for (const std::vector<T>& operand : operands) memory.push_back(bytes_of_values(operand));
  for (const Bytes& bytes : memory) pointers.push_back(bytes.data());
  std::vector<T> result(operands.front().size());
  reduce(reinterpret_cast<std::byte*>(result.data()), pointers, result.size(), type, op, scale);
  return result;
}

std::vector<float> reduce_floats(const std::vector<std::vector<float>>& operands, ReduceOp op, double scale = 1.0) {
  return reduce_values(operands, DataType::float32, op, scale);
}

// ---- the reference: one element at a time, in the order of the operands ----

template <typename T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op != ReduceOp::sum && op != ReduceOp::average && (std::isnan(a) || std::isnan(b))) return kNaN;
  }
  switch (op) {
    case ReduceOp::minimum:
      return std::min(a, b);
    case ReduceOp::maximum:
      return std::max(a, b);
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) return a + b;
  return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

struct Element {
  std::uint64_t bits = 0;  // in the lower bytes
};

Element load(const Bytes& from, std::size_t offset, std::size_t i, DataType type) {
  Element element;
  std::memcpy(&element.bits, from.data() + offset + i * bytes_of(type), bytes_of(type));
  return element;
}

template <typename T>
Element fold(const std::vector<Element>& operands, ReduceOp op) {
  T result{};
  std::memcpy(&result, &operands[0].bits, sizeof(T));
  for (std::size_t k = 1; k < operands.size(); ++k) {
    T next{};
    std::memcpy(&next, &operands[k].bits, sizeof(T));
    result = combine(op, result, next);
  }
  Element element;
  std::memcpy(&element.bits, &result, sizeof(T));
  return element;
}

Element expected(const std::vector<Element>& operands, DataType type, ReduceOp op, double scale) {
  if (type == DataType::int32) return fold<std::int32_t>(operands, op);
  if (type == DataType::int64) return fold<std::int64_t>(operands, op);
  const bool is_half = type == DataType::bfloat16;
  std::vector<Element> floats = operands;
  for (Element& element : floats) {
    if (is_half) element.bits = std::bit_cast<std::uint32_t>(to_float(static_cast<std::uint16_t>(element.bits)));
  }
  auto value = std::bit_cast<float>(static_cast<std::uint32_t>(fold<float>(floats, op).bits));
  if (scale != 1.0) {
    value = is_half ? value * static_cast<float>(scale) : static_cast<float>(static_cast<double>(value) * scale);
  }
  return {is_half ? to_bfloat16(value) : std::bit_cast<std::uint32_t>(value)};
}

bool is_nan(Element element, DataType type) {
  if (type == DataType::float32) return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(element.bits)));
  return type == DataType::bfloat16 && std::isnan(to_float(static_cast<std::uint16_t>(element.bits)));
}

struct Parameters {
  DataType type;
  ReduceOp op;
};

class Reduce : public testing::TestWithParam<Parameters> {
 protected:
  /// Random bits, or for floating types mostly ordinary numbers with a NaN or an infinity here and there.
  Bytes random_operand(std::size_t count, std::size_t offset) {
    Bytes bytes(offset + count * bytes_of(GetParam().type));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = random_element();
      std::memcpy(bytes.data() + offset + i * bytes_of(GetParam().type), &bits, bytes_of(GetParam().type));
    }
    return bytes;
  }

  std::uint64_t random_element() {
    const DataType type = GetParam().type;
    if (type == DataType::int32 || type == DataType::int64) return random_.next();
    float value = static_cast<float>(random_.next() % 20001) / 128.0F - 70.0F;
    if (random_.one_in(200)) value = kNaN;
    if (random_.one_in(200)) value = kInfinity;
    return type == DataType::bfloat16 ? to_bfloat16(value) : std::bit_cast<std::uint32_t>(value);
  }

  void compare(std::size_t operands, std::size_t count, std::size_t offset, bool in_place) {
    const auto [type, op] = GetParam();
    const double scale = op == ReduceOp::average ? 1.0 / static_cast<double>(operands) : 1.0;
    std::vector<Bytes> memory;
    std::vector<const std::byte*> pointers;
    for (std::size_t k = 0; k < operands; ++k) memory.push_back(random_operand(count, offset));
    for (const Bytes& bytes : memory) pointers.push_back(bytes.data() + offset);
    const std::vector<Bytes> original = memory;
    Bytes separate(offset + count * bytes_of(type));
    Bytes& target = in_place ? memory[operands / 2] : separate;
    reduce(target.data() + offset, pointers, count, type, op, scale);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Element> row;
      for (const Bytes& bytes : original) row.push_back(load(bytes, offset, i, type));
      const Element want = expected(row, type, op, scale);
      const Element got = load(target, offset, i, type);
      if (is_nan(want, type) && is_nan(got, type)) continue;
      ASSERT_EQ(got.bits, want.bits) << operands << " operands, element " << i << " of " << count << ", offset "
                                     << offset << ", in place " << in_place << ", seed " << kSeed;
    }
  }

  static constexpr std::uint64_t kSeed = 20240611;
  Random random_{kSeed};
};

TEST_P(Reduce, AgreesWithTheReference) {
  for (const std::size_t operands : {1, 2, 3, 4, 5, 6, 8, 17}) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 31, 64, 1023, 1024, 1025, 2051, 4100})
      compare(operands, count, 0, false);
  }
}

TEST_P(Reduce, AgreesWithTheReference_InPlace) {
  for (const std::size_t operands : {1, 2, 3, 4, 7}) {
    for (const std::size_t count : {1, 5, 64, 1025, 3001}) compare(operands, count, 0, true);
  }
}

TEST_P(Reduce, AgreesWithTheReference_AtAnyAlignment) {
  for (std::size_t offset = 1; offset < 16; ++offset) {
    for (const std::size_t operands : {2, 3, 5}) compare(operands, 131, offset, offset % 2 == 0);
  }
}

TEST_P(Reduce, WritesNothingBeyondTheTarget) {
  const auto [type, op] = GetParam();
  const std::size_t size = bytes_of(type);
  for (const std::size_t count : {1, 3, 37, 1027}) {
    const Bytes a = random_operand(count, 0);
    Bytes target(count * size + 32, std::byte{0xA5});
    const std::vector<const std::byte*> pointers{a.data(), a.data(), a.data(), a.data()};
    reduce(target.data() + 16, pointers, count, type, op, 1.0);
    for (std::size_t k = 0; k < 16; ++k) {
      EXPECT_EQ(target[k], std::byte{0xA5});
      EXPECT_EQ(target[16 + count * size + k], std::byte{0xA5});
    }
  }
}

std::vector<Parameters> all_supported() {
  std::vector<Parameters> all;
  for (const DataType type :
       {DataType::float32, DataType::bfloat16, DataType::int32, DataType::int64, DataType::bytes}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum}) {
      if (supported(type, op)) all.push_back({type, op});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Reduce, testing::ValuesIn(all_supported()), [](const auto& test) {
  return std::string(name_of(test.param.type)) + "_" + std::string(name_of(test.param.op));
});

TEST(ReduceSupported, CoversFourTypesButNoIntegerAverage) { EXPECT_EQ(all_supported().size(), 14U); }

TEST(ReduceSupported, SaysWhatToDo_ForIntegerAverages) {
  for (const DataType type : {DataType::int32, DataType::int64}) {
    const Status status = supported(type, ReduceOp::average);
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr("average of " + std::string(name_of(type))),
                                                 testing::HasSubstr("divide"), testing::HasSubstr("floating type")));
  }
}

TEST(ReduceSupported, SaysWhatToDo_ForBytes) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum}) {
    const Status status = supported(DataType::bytes, op);
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr(std::string(name_of(op)) + " of bytes"),
                                                 testing::HasSubstr("Convert")));
  }
}

TEST(ReduceFloat32, LetsNaNWin_WhereverItStands) {
  for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum, ReduceOp::sum}) {
    for (std::size_t operands = 2; operands <= 6; ++operands) {
      for (std::size_t at = 0; at < operands; ++at) {
        std::vector<std::vector<float>> values(operands, std::vector<float>(40, 1.0F));
        values[at].assign(40, kNaN);
        for (const float result : reduce_floats(values, op)) ASSERT_TRUE(std::isnan(result)) << operands << " " << at;
      }
    }
  }
}

TEST(ReduceFloat32, AddsFromLeftToRight) {
  const float big = 16777216.0F;  // 2^24: adding 1 to it is lost
  EXPECT_EQ(reduce_floats({{1.0F}, {1.0F}, {big}}, ReduceOp::sum)[0], big + 2);
  EXPECT_EQ(reduce_floats({{big}, {1.0F}, {1.0F}}, ReduceOp::sum)[0], big);
  EXPECT_EQ(reduce_floats({{1.0F}, {1.0F}, {1.0F}, {1.0F}, {big}}, ReduceOp::sum)[0], big + 4);
  EXPECT_EQ(reduce_floats({{big}, {1.0F}, {1.0F}, {1.0F}, {1.0F}}, ReduceOp::sum)[0], big);
}

TEST(ReduceFloat32, DividesAnAverageExactly) {
  Random random(5);
  for (const int n : {2, 3, 5, 6, 7, 12, 63}) {
    std::vector<std::vector<float>> values(2, std::vector<float>(500));
    for (std::size_t i = 0; i < 500; ++i) values[0][i] = static_cast<float>(random.below(1U << 30)) / 77.0F;
    const std::vector<float> result = reduce_floats(values, ReduceOp::average, 1.0 / n);
    for (std::size_t i = 0; i < 500; ++i) ASSERT_EQ(result[i], values[0][i] / static_cast<float>(n)) << n << " seed 5";
  }
}

TEST(ReduceBfloat16, RoundsOnce_AfterAllOperands) {
  // 256 + 1 + 1: each addition alone would be rounded back to 256, the spacing there being 2.
  const std::uint16_t big = to_bfloat16(256.0F);
  const std::uint16_t one = to_bfloat16(1.0F);
  for (std::size_t ones = 2; ones <= 8; ones += 2) {
    std::vector<std::vector<std::uint16_t>> values(ones + 1, std::vector<std::uint16_t>(3, one));
    values[0].assign(3, big);
    for (const std::uint16_t result : reduce_values(values, DataType::bfloat16, ReduceOp::sum)) {
      EXPECT_EQ(to_float(result), 256.0F + static_cast<float>(ones));
    }
  }
}

TEST(ReduceBfloat16, RoundsTiesToEven) {
  const auto sum = [](float a, float b) {
    const std::vector<std::uint16_t> left(3, to_bfloat16(a));
    const std::vector<std::uint16_t> right(3, to_bfloat16(b));
    const auto result = reduce_values<std::uint16_t>({left, right}, DataType::bfloat16, ReduceOp::sum);
    EXPECT_EQ(result[0], result[2]) << "the pair and the single last element differ";
    return to_float(result[2]);
  };
  EXPECT_EQ(sum(256, 1), 256);
  EXPECT_EQ(sum(258, 1), 260);
  EXPECT_EQ(sum(-258, -1), -260);
}

TEST(ReduceBfloat16, KeepsNaNAndInfinity) {
  const std::vector<std::uint16_t> nan(3, 0x7F81);  // would become infinity if it were rounded as a number
  const std::vector<std::uint16_t> largest(3, 0x7F7F);
  for (const std::uint16_t result : reduce_values<std::uint16_t>({nan, largest}, DataType::bfloat16, ReduceOp::sum)) {
    EXPECT_TRUE(std::isnan(to_float(result)));
  }
  for (const std::uint16_t result :
       reduce_values<std::uint16_t>({largest, largest}, DataType::bfloat16, ReduceOp::sum)) {
    EXPECT_EQ(to_float(result), kInfinity);
  }
}

/// Compiled here with the instructions that every machine has; reduce() picks better ones where it can.
template <typename Lanes, typename Op>
void compare_with_plain_instructions(DataType type, ReduceOp op) {
  Random random(9);
  constexpr std::size_t kCount = 3001;
  std::vector<Bytes> memory(5, Bytes(kCount * bytes_of(type)));
  std::vector<const std::byte*> pointers;
  for (Bytes& bytes : memory) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0x3F);  // no NaN, no infinity
    pointers.push_back(bytes.data());
  }
  for (std::size_t operands = 2; operands <= memory.size(); ++operands) {
    Bytes plain(memory[0].size());
    Bytes chosen(memory[0].size());
    kernels::combine_all<Lanes, Op, false>({plain.data(), pointers.data(), operands, kCount, 1.0});
    reduce(chosen.data(), {pointers.data(), operands}, kCount, type, op, 1.0);
    EXPECT_EQ(plain, chosen) << name_of(type) << " " << name_of(op) << ", " << operands << " operands, seed 9";
  }
}

TEST(ReduceKernels, AgreeBetweenInstructionSets) {
  using namespace kernels;
  compare_with_plain_instructions<Plain<float>, Sum>(DataType::float32, ReduceOp::sum);
  compare_with_plain_instructions<Plain<float>, Minimum>(DataType::float32, ReduceOp::minimum);
  compare_with_plain_instructions<Bfloat16Pair, Sum>(DataType::bfloat16, ReduceOp::sum);
  compare_with_plain_instructions<Bfloat16Pair, Maximum>(DataType::bfloat16, ReduceOp::maximum);
  compare_with_plain_instructions<Plain<std::int32_t>, Sum>(DataType::int32, ReduceOp::sum);
  compare_with_plain_instructions<Plain<std::int64_t>, Maximum>(DataType::int64, ReduceOp::maximum);
}

TEST(ReduceInteger, WrapsAround) {
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const auto result = reduce_values<std::int32_t>({{most}, {1}}, DataType::int32, ReduceOp::sum);
  EXPECT_EQ(result[0], std::numeric_limits<std::int32_t>::min());
}

TEST(ReduceInteger, KeepsLargeNumbersExact) {
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  EXPECT_EQ(reduce_values<std::int64_t>({{large}, {2}, {3}, {4}}, DataType::int64, ReduceOp::sum)[0], large + 9);
}

}  // namespace
}  // namespace neuron
