// Rank: the number of a process in the job (global) or in a group; which of the two, the name of the variable says.
#pragma once
#include <cstdint>

namespace neuron {

using Rank = std::int32_t;
inline constexpr Rank kNoRank = -1;

}  // namespace neuron
