// The loops of the reduction kernels, written so that the compiler vectorises them; reducer.cc compiles each once per
// instruction set. Pure functions, any thread, cannot fail. Memory may be unaligned: all access is through memcpy.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Element i depends on element i alone, also where target and an operand are the same memory; without this the compiler
// would take the scalar loop in that case.
#if defined(__clang__)
#define NEURON_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define NEURON_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif
// The bodies must be compiled with the instruction set of the function that they end up in.
#define NEURON_ALWAYS_INLINE __attribute__((always_inline)) inline

namespace neuron::kernels {

/// Lanes of a block: its accumulators stay in the first-level cache (8 KiB).
inline constexpr std::size_t kBlock = 1024;

/// What a kernel is called with; `count` in lanes.
struct Arguments {
  std::byte* target;
  const std::byte* const* operands;
  std::size_t operand_count;
  std::size_t count;
  double scale;
};

template <typename T>
NEURON_ALWAYS_INLINE T load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
NEURON_ALWAYS_INLINE void store(std::byte* to, std::size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

/// A lane is what one iteration works on. Here: one element that accumulates in its own type.
template <typename T>
struct Plain {
  static constexpr std::size_t kElements = 1;
  using Lane = T;
  struct Block {
    alignas(64) T lanes[kBlock];
    NEURON_ALWAYS_INLINE T get(std::size_t i) const { return lanes[i]; }
    NEURON_ALWAYS_INLINE void put(std::size_t i, T lane) { lanes[i] = lane; }
  };
  static NEURON_ALWAYS_INLINE T get(const std::byte* from, std::size_t i) { return load<T>(from, i); }
  static NEURON_ALWAYS_INLINE void put(std::byte* to, std::size_t i, T lane) { store<T>(to, i, lane); }
};

/// A bfloat16 is the upper half of a float32. Rounds to nearest, ties to even; a NaN stays a NaN (made quiet).
NEURON_ALWAYS_INLINE std::uint32_t rounded_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return value != value ? bits | 0x00400000U : rounded;
}

/// Two neighbouring bfloat16, in the halves of a word: vectors need neither widening nor narrowing.
struct Bfloat16Pair {
  static constexpr std::size_t kElements = 2;
  struct Lane {
    float low;
    float high;
  };
  struct Block {
    alignas(64) float low[kBlock];
    alignas(64) float high[kBlock];
    NEURON_ALWAYS_INLINE Lane get(std::size_t i) const { return {low[i], high[i]}; }
    NEURON_ALWAYS_INLINE void put(std::size_t i, Lane lane) {
      low[i] = lane.low;
      high[i] = lane.high;
    }
  };
  static NEURON_ALWAYS_INLINE Lane get(const std::byte* from, std::size_t i) {
    const auto word = load<std::uint32_t>(from, i);
    return {std::bit_cast<float>(word << 16), std::bit_cast<float>(word & 0xFFFF0000U)};
  }
  static NEURON_ALWAYS_INLINE void put(std::byte* to, std::size_t i, Lane lane) {
    store<std::uint32_t>(to, i, (rounded_bits(lane.low) >> 16) | (rounded_bits(lane.high) & 0xFFFF0000U));
  }
};

/// One bfloat16: the last of an odd number.
struct Bfloat16 {
  static NEURON_ALWAYS_INLINE float get(const std::byte* from, std::size_t i) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(from, i)) << 16);
  }
  static NEURON_ALWAYS_INLINE void put(std::byte* to, std::size_t i, float lane) {
    store<std::uint16_t>(to, i, static_cast<std::uint16_t>(rounded_bits(lane) >> 16));
  }
};

/// a where the condition holds, else b, by masks: a branch would keep two nested choices from being vectorised.
NEURON_ALWAYS_INLINE float choose(bool condition, float a, float b) {
  const std::uint32_t mask = condition ? ~0U : 0U;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) | (std::bit_cast<std::uint32_t>(b) & ~mask));
}

struct Sum {
  static NEURON_ALWAYS_INLINE float apply(float a, float b) { return a + b; }
  // Integers wrap around, as PyTorch's do.
  static NEURON_ALWAYS_INLINE std::int32_t apply(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
  static NEURON_ALWAYS_INLINE std::int64_t apply(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

// A NaN among the operands is the result, as in torch.minimum and torch.maximum.
struct Minimum {
  static NEURON_ALWAYS_INLINE float apply(float a, float b) { return choose((a < b) | (a != a), a, b); }
  template <typename T>
  static NEURON_ALWAYS_INLINE T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  static NEURON_ALWAYS_INLINE float apply(float a, float b) { return choose((a > b) | (a != a), a, b); }
  template <typename T>
  static NEURON_ALWAYS_INLINE T apply(T a, T b) {
    return a > b ? a : b;
  }
};

template <typename Op, typename T>
NEURON_ALWAYS_INLINE T apply(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16Pair::Lane>) {
    return {Op::apply(a.low, b.low), Op::apply(a.high, b.high)};
  } else {
    return Op::apply(a, b);
  }
}

/// The product of a float32 is made in double: with scale = 1/n that is the correctly rounded quotient. For bfloat16
/// the accumulator has bits enough as it is.
template <bool kScaled, typename T>
NEURON_ALWAYS_INLINE T scaled(T value, double scale) {
  if constexpr (!kScaled) {
    return value;
  } else if constexpr (std::is_same_v<T, Bfloat16Pair::Lane>) {
    const auto factor = static_cast<float>(scale);
    return {value.low * factor, value.high * factor};
  } else {
    return static_cast<T>(static_cast<double>(value) * scale);
  }
}

template <typename Element, bool kScaled>
NEURON_ALWAYS_INLINE void combine_1(const Arguments& in) {
  const std::byte* const a = in.operands[0];
  NEURON_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < in.count; ++i) {
    Element::put(in.target, i, scaled<kScaled>(Element::get(a, i), in.scale));
  }
}

template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine_2(const Arguments& in) {
  const std::byte* const a = in.operands[0];
  const std::byte* const b = in.operands[1];
  std::byte* const target = in.target;
  const std::size_t count = in.count;
  const double scale = in.scale;
  NEURON_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) {
    Element::put(target, i, scaled<kScaled>(apply<Op>(Element::get(a, i), Element::get(b, i)), scale));
  }
}

template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine_3(const Arguments& in) {
  const std::byte* const a = in.operands[0];
  const std::byte* const b = in.operands[1];
  const std::byte* const c = in.operands[2];
  std::byte* const target = in.target;
  const std::size_t count = in.count;
  const double scale = in.scale;
  NEURON_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) {
    const auto two = apply<Op>(Element::get(a, i), Element::get(b, i));
    Element::put(target, i, scaled<kScaled>(apply<Op>(two, Element::get(c, i)), scale));
  }
}

template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine_many(const Arguments& in) {
  typename Element::Block sum;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  std::byte* const target = in.target;
  const double scale = in.scale;
  for (std::size_t start = 0; start < in.count; start += kBlock) {
    const std::size_t size = std::min(kBlock, in.count - start);
    const std::byte* const first = in.operands[0];
    const std::byte* const second = in.operands[1];
    for (std::size_t i = 0; i < size; ++i) {
      sum.put(i, apply<Op>(Element::get(first, start + i), Element::get(second, start + i)));
    }
    std::size_t k = 2;
    for (; k + 2 < in.operand_count; k += 2) {
      const std::byte* const a = in.operands[k];
      const std::byte* const b = in.operands[k + 1];
      for (std::size_t i = 0; i < size; ++i) {
        const auto three = apply<Op>(sum.get(i), Element::get(a, start + i));
        sum.put(i, apply<Op>(three, Element::get(b, start + i)));
      }
    }
    for (; k + 1 < in.operand_count; ++k) {
      const std::byte* const a = in.operands[k];
      for (std::size_t i = 0; i < size; ++i) sum.put(i, apply<Op>(sum.get(i), Element::get(a, start + i)));
    }
    const std::byte* const last = in.operands[k];
    NEURON_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < size; ++i) {
      const auto all = apply<Op>(sum.get(i), Element::get(last, start + i));
      Element::put(target, start + i, scaled<kScaled>(all, scale));
    }
  }
}

template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine(const Arguments& in) {
  switch (in.operand_count) {
    case 1:
      return combine_1<Element, kScaled>(in);
    case 2:
      return combine_2<Element, Op, kScaled>(in);
    case 3:
      return combine_3<Element, Op, kScaled>(in);
    default:
      return combine_many<Element, Op, kScaled>(in);
  }
}

/// The one element at `index`, in elements.
template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine_single(const Arguments& in, std::size_t index) {
  auto result = Element::get(in.operands[0], index);
  for (std::size_t k = 1; k < in.operand_count; ++k) result = Op::apply(result, Element::get(in.operands[k], index));
  Element::put(in.target, index, kScaled ? result * static_cast<float>(in.scale) : result);
}

/// `in.count` in elements.
template <typename Element, typename Op, bool kScaled>
NEURON_ALWAYS_INLINE void combine_all(const Arguments& in) {
  Arguments lanes = in;
  lanes.count = in.count / Element::kElements;
  combine<Element, Op, kScaled>(lanes);
  if constexpr (std::is_same_v<Element, Bfloat16Pair>) {
    if (in.count % 2 == 1) combine_single<Bfloat16, Op, kScaled>(in, in.count - 1);
  }
}

}  // namespace neuron::kernels
