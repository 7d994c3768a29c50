// Short names for writing the algorithms: each makes a piece of a Schedule. Pure functions, any thread, cannot fail.
#pragma once
#include <cstdint>

#include "collectives/schedule/schedule.h"

namespace neuron::algorithms {

/// base + step * i.
constexpr Index linear(std::int32_t base, std::int32_t step = 0) { return {base, step, Growth::linear}; }
/// base + step * 2^i.
constexpr Index doubling(std::int32_t base, std::int32_t step) { return {base, step, Growth::doubling}; }

inline Chunk input(Index first = {}) { return {.space = Space::input, .first = first}; }
inline Chunk output(Index first = {}) { return {.space = Space::output, .first = first}; }
inline Chunk scratch(Index first = {}) { return {.space = Space::scratch, .first = first}; }

struct Afters {
  After first{};
  After second{};
  After third{};
};

/// Which message it is: between the same two ranks, no other has this (stage, label).
struct Label {
  std::uint8_t stage = 0;
  Index index{};
};

inline Step send(const Chunk& source, Index peer, Label label, const Afters& after = {}) {
  return {.kind = StepKind::send,
          .stage = label.stage,
          .peer = peer,
          .label = label.index,
          .source = source,
          .after = {after.first, after.second, after.third}};
}

inline Step receive(const Chunk& target, Index peer, Label label, const Afters& after = {}) {
  return {.kind = StepKind::receive,
          .stage = label.stage,
          .peer = peer,
          .label = label.index,
          .target = target,
          .after = {after.first, after.second, after.third}};
}

/// Combines one received message with the local source.
inline Step reduce(const Chunk& source, const Chunk& target, Index peer, Label label, bool completes,
                   const Afters& after = {}) {
  return {.kind = StepKind::reduce,
          .stage = label.stage,
          .completes_reduction = completes,
          .peer = peer,
          .label = label.index,
          .source = source,
          .target = target,
          .after = {after.first, after.second, after.third}};
}

/// Combines one message of each other rank and the local source, in rank order, in one pass.
inline Step reduce_all(Rank world, const Chunk& source, const Chunk& target, const Afters& after = {}) {
  Step step = reduce(source, target, linear(0, 1), {}, true, after);
  step.fan = static_cast<std::uint32_t>(world);
  return step;
}

inline Step copy(const Chunk& source, const Chunk& target, const Afters& after = {}) {
  return {
      .kind = StepKind::copy, .source = source, .target = target, .after = {after.first, after.second, after.third}};
}

}  // namespace neuron::algorithms
