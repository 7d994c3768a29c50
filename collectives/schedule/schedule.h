// Schedule: what ONE rank does in a collective, as data. A small immutable value: phases that loop over a few steps
// whose peers and chunks are affine in the loop index. No pointer, no byte count, no time: size chooses which schedule,
// never its content. Five readers: execute (collectives/run), verify, simulate, cost, draw.
//
// How it is read. A schedule is a sequence of instances (phase by phase, iteration by iteration, step by step). A
// reader issues them strictly in that order; an instance is issued when what it comes `after` is complete, and
// completes on its own. So write receives before the sends that wait for them. Sends read their source between issue
// and completion; receives write their target between issue and completion. Messages are matched by (source,
// destination, stage, label).
//
// The executor runs a schedule once per segment of the chunks ("lane"), several lanes at a time; lanes are independent.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/rank.h"

namespace neuron {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  send,
  receive,
};
[[nodiscard]] std::string_view name_of(Collective collective);

enum class Algorithm : std::uint8_t {
  direct,  // everyone exchanges with everyone; reductions take all operands at once
  ring,
  binomial,       // tree of doubling distance
  pairwise,       // step i exchanges with the ranks at distance i
  dissemination,  // step i signals the rank at distance 2^i
  point_to_point,
};
[[nodiscard]] std::string_view name_of(Algorithm algorithm);

/// An integer as a function of the loop index i: base + step * i, or, doubling, base + step * 2^i, or, halving,
/// base + step / 2^i. Peers are taken modulo the world size, chunks modulo the chunk count, labels as they are.
enum class Growth : std::uint8_t { linear, doubling, halving };
struct Index {
  std::int32_t base = 0;
  std::int32_t step = 0;
  Growth growth = Growth::linear;

  [[nodiscard]] std::int64_t at(std::int64_t i) const {
    if (growth == Growth::linear) return base + step * i;
    const std::int64_t magnitude = growth == Growth::doubling ? std::int64_t{1} << i : 1;
    if (growth == Growth::doubling) return base + step * magnitude;
    return base + (step >= 0 ? step >> i : -((-step) >> i));
  }
  friend bool operator==(const Index&, const Index&) = default;
};

/// Which memory a step reads or writes. In place, `input` and `output` are the same memory.
enum class Space : std::uint8_t { none, input, output, scratch };
[[nodiscard]] std::string_view name_of(Space space);

/// `extent` neighbouring chunks of a space, from `first` on.
struct Chunk {
  Space space = Space::none;
  Index first{};
  Index extent{1, 0, Growth::linear};
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

enum class StepKind : std::uint8_t {
  send,     // source -> peer
  receive,  // peer -> target
  reduce,   // receives `fan` messages and combines them, with the local source, into target in one pass
  copy,     // source -> target, local
};
[[nodiscard]] std::string_view name_of(StepKind kind);

/// Which instances of an earlier (or the same) step must be complete. The step may belong to an earlier phase;
/// iterations are then compared by number. An instance that does not exist (skipped phase, fewer iterations) counts as
/// complete.
enum class Scope : std::uint8_t {
  none,
  same,      // the instance of the same iteration
  previous,  // that of the iteration before; satisfied in the first iteration
  last,      // that of its phase's last iteration
  all,       // every instance of it
};
[[nodiscard]] std::string_view name_of(Scope scope);
struct After {
  std::uint8_t step = 0;  // index into Schedule::steps
  Scope scope = Scope::none;
  friend bool operator==(const After&, const After&) = default;
};

struct Step {
  StepKind kind = StepKind::copy;
  /// Messages with different (stage, label) between the same two ranks are different messages.
  std::uint8_t stage = 0;
  /// reduce: this step's result is the final value of the chunk, so an average is divided here.
  bool completes_reduction = false;
  /// reduce: number of operand positions. Position j (of iteration i) stands for peer.at(i * fan + j); where that is
  /// this rank itself, the local source is the operand; if no position is, the local source comes after the last one.
  /// Operands are combined in the order of the positions: the expression tree is fixed by the schedule.
  std::uint32_t fan = 1;
  Index peer{};
  Index label{};   // reduce: of all messages of the iteration
  Chunk source{};  // send, copy, reduce (local operand; Space::none: there is none)
  Chunk target{};  // receive, reduce, copy
  std::array<After, 3> after{};
  friend bool operator==(const Step&, const Step&) = default;
};

struct Phase {
  std::uint32_t iterations = 0;
  std::uint8_t first_step = 0;
  std::uint8_t step_count = 0;
  friend bool operator==(const Phase&, const Phase&) = default;
};

/// Instances of a schedule by their place in issue order: first, first + stride, ... (`count` of them).
struct InstanceRange {
  std::size_t first = 0;
  std::size_t stride = 1;
  std::size_t count = 0;
  friend bool operator==(const InstanceRange&, const InstanceRange&) = default;
};

inline constexpr std::size_t kMaxSteps = 8;
inline constexpr std::size_t kMaxPhases = 4;

struct Schedule {
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::direct;
  Rank rank = 0;  // in the group
  Rank world = 1;
  Rank root = kNoRank;               // rooted collectives; send: destination, receive: source
  std::uint32_t chunks = 1;          // the buffers are cut into so many
  std::uint32_t scratch_chunks = 0;  // as large as the largest chunk each
  std::uint8_t step_count = 0;
  std::uint8_t phase_count = 0;
  std::array<Phase, kMaxPhases> phases{};
  std::array<Step, kMaxSteps> steps{};

  /// Appends a phase of `iterations` over `body`; no effect when iterations is 0. Steps keep the numbers that they get
  /// here, in order of appending, so `After::step` may name them; a skipped phase still takes its numbers.
  Schedule& loop(std::uint32_t iterations, std::span<const Step> body);

  [[nodiscard]] Rank peer_at(const Step& step, std::int64_t i) const;
  [[nodiscard]] std::uint32_t chunk_at(const Index& index, std::int64_t i) const;
  /// First chunk of `chunk` in iteration i, modulo the number of chunks of its space.
  [[nodiscard]] std::uint32_t chunk_at(const Chunk& chunk, std::int64_t i) const;
  /// Number of chunks of a space: `chunks`, 1 or `scratch_chunks`, by collective.
  [[nodiscard]] std::uint32_t chunks_in(Space space) const;
  /// The instances that `after`, as written in iteration i of a step, waits for.
  [[nodiscard]] InstanceRange awaited(const After& after, std::int64_t i) const;
  /// Number of instances over all phases.
  [[nodiscard]] std::size_t instances() const;
  /// A stable 64-bit hash of the whole value: two ranks' records name the same schedule iff their hashes agree.
  [[nodiscard]] std::uint64_t hash() const;
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// The (stage, label) of a message as the lower 32 bits of Header::tag; the lane takes the upper 32.
[[nodiscard]] constexpr std::uint32_t message_label(std::uint8_t stage, std::int64_t label) {
  return (static_cast<std::uint32_t>(stage) << 24) | (static_cast<std::uint32_t>(label) & 0xFFFFFFU);
}

}  // namespace neuron
