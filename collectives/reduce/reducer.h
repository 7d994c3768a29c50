// The reduction kernels: every supported DataType x ReduceOp, n operands in one pass with one rounding.
// Pure functions; any thread; no allocation. Memory may be unaligned for the type. `target` may be the same memory as
// one of the operands (exactly the same address), never a partial overlap.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/reduce/data_type.h"
#include "transport/base/status.h"

namespace neuron {

/// target[i] = operands[0][i] op operands[1][i] op ..., combined from left to right; float types accumulate in float32
/// and round once per call. `scale` multiplies the result before rounding (1.0: not at all); average is sum with the
/// scale given by the caller, 1/n in the call that completes the reduction, 1.0 before. `count` elements.
/// operands.size() >= 1. The combination must be supported().
void reduce(std::byte* target, std::span<const std::byte* const> operands, std::size_t count, DataType type,
            ReduceOp op, double scale);

/// unsupported: names dtype, op and what to use instead (integer average, any op on bytes).
Status supported(DataType type, ReduceOp op);

}  // namespace neuron
