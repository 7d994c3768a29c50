#include "collectives/reduce/reducer.h"

#include <string>

#include "collectives/reduce/kernels.h"
#include "transport/base/check.h"

namespace neuron {
namespace {

using kernels::Arguments;
using Kernel = void (*)(const Arguments&);

// One compilation of a kernel per instruction set, chosen at run time by an ordinary branch: an ifunc would be resolved
// before the sanitizers' run-time is ready.
template <typename Element, typename Op, bool kScaled>
void baseline(const Arguments& in) {
  kernels::combine_all<Element, Op, kScaled>(in);
}

#if defined(__x86_64__)
template <typename Element, typename Op, bool kScaled>
[[gnu::target("avx2")]] void avx2(const Arguments& in) {
  kernels::combine_all<Element, Op, kScaled>(in);
}

template <typename Element, typename Op, bool kScaled>
Kernel pick() {
  static const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
  return kHasAvx2 ? &avx2<Element, Op, kScaled> : &baseline<Element, Op, kScaled>;
}
#else
template <typename Element, typename Op, bool kScaled>
Kernel pick() {
  return &baseline<Element, Op, kScaled>;
}
#endif

template <typename Element, bool kMayScale>
Kernel kernel_for(ReduceOp op, bool is_scaled) {
  NEURON_CHECK(!is_scaled || (kMayScale && op == ReduceOp::average), "only an average of a floating type is scaled");
  switch (op) {
    case ReduceOp::average:
      if constexpr (kMayScale) {
        if (is_scaled) return pick<Element, kernels::Sum, true>();
      }
      [[fallthrough]];
    case ReduceOp::sum:
      return pick<Element, kernels::Sum, false>();
    case ReduceOp::minimum:
      return pick<Element, kernels::Minimum, false>();
    case ReduceOp::maximum:
      return pick<Element, kernels::Maximum, false>();
  }
  return nullptr;
}

Kernel kernel_for(DataType type, ReduceOp op, bool is_scaled) {
  switch (type) {
    case DataType::float32:
      return kernel_for<kernels::Plain<float>, true>(op, is_scaled);
    case DataType::bfloat16:
      return kernel_for<kernels::Bfloat16Pair, true>(op, is_scaled);
    case DataType::int32:
      return kernel_for<kernels::Plain<std::int32_t>, false>(op, is_scaled);
    case DataType::int64:
      return kernel_for<kernels::Plain<std::int64_t>, false>(op, is_scaled);
    case DataType::bytes:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::bytes:
      return "bytes";
    case DataType::float32:
      return "float32";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::average:
      return "average";
    case ReduceOp::minimum:
      return "minimum";
    case ReduceOp::maximum:
      return "maximum";
  }
  return "unknown";
}

void reduce(std::byte* target, std::span<const std::byte* const> operands, std::size_t count, DataType type,
            ReduceOp op, double scale) {
  NEURON_CHECK(!operands.empty(), "a reduction needs at least one operand");
  if (count == 0) return;
  const bool is_scaled = scale != 1.0;
  if (operands.size() == 1 && !is_scaled) {
    if (operands[0] != target) std::memcpy(target, operands[0], count * bytes_of(type));
    return;
  }
  const Kernel kernel = kernel_for(type, op, is_scaled);
  NEURON_CHECK(kernel != nullptr, "no reduction of this type; supported() was not asked");
  kernel({target, operands.data(), operands.size(), count, scale});
}

Status supported(DataType type, ReduceOp op) {
  const std::string what = "the reduction " + std::string(name_of(op)) + " of " + std::string(name_of(type));
  if (type == DataType::bytes) {
    return {Code::unsupported, what +
                                   " is not supported: raw bytes can only be moved. Convert the tensor to float32, " +
                                   "bfloat16, int32 or int64 first."};
  }
  const bool is_integer = type == DataType::int32 || type == DataType::int64;
  if (is_integer && op == ReduceOp::average) {
    return {Code::unsupported, what +
                                   " is not supported: it would have to round. Use sum and divide by the world size " +
                                   "yourself, or convert the tensor to a floating type."};
  }
  return {};
}

}  // namespace neuron
