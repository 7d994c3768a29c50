// What verify computes with: reductions as hash-consed expression trees, and each rank's memory as slots.
// Values and pure functions. Any thread. Nothing here fails.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace neuron {

/// An expression over the inputs of all ranks. Two expressions are the same tree iff their numbers agree.
using Expression = std::uint32_t;
/// What memory holds that nobody has written.
inline constexpr Expression kUndefined = 0;

/// All expressions of one verification.
class Expressions {
 public:
  explicit Expressions(std::uint64_t seed);

  /// Chunk `chunk` of the input of `rank`.
  Expression leaf(Rank rank, std::uint32_t chunk);
  /// The operands combined from left to right in one step.
  Expression combine(std::span<const Expression> operands, bool completes_reduction);

  /// A sum over the leaves' random numbers: equal iff the same leaves occur equally often (up to chance, 2^-64).
  [[nodiscard]] std::uint64_t leaves_of(Expression expression) const { return nodes_[expression].leaves; }
  /// How often an average is divided on the way from a leaf to the top, at most; 2 stands for more.
  [[nodiscard]] int completions_of(Expression expression) const { return nodes_[expression].completions; }
  /// Whether the last combination is the one that completes the reduction.
  [[nodiscard]] bool is_complete(Expression expression) const { return nodes_[expression].is_complete; }
  /// "((0:3 + 1:3) + 2:3)", rank:chunk; long ones are cut.
  [[nodiscard]] std::string to_text(Expression expression) const;

 private:
  struct Node {
    std::uint32_t first = 0;  // in operands_; leaf: rank
    std::uint32_t count = 0;  // 0: leaf
    std::uint32_t chunk = 0;  // leaf
    std::uint64_t leaves = 0;
    int completions = 0;
    bool is_complete = false;
  };
  Expression find_or_add(std::uint64_t hash, const Node& node, std::span<const Expression> operands);
  [[nodiscard]] bool is_same(const Node& node, const Node& other, std::span<const Expression> operands) const;
  void append_text(Expression expression, std::string& text) const;

  std::uint64_t seed_;
  std::vector<Node> nodes_{Node{}};
  std::vector<Expression> operands_;
  std::unordered_multimap<std::uint64_t, Expression> by_hash_;
};

/// Where a rank's chunks lie (slots that alias share a number), what they hold at first and must hold at last.
class Memory {
 public:
  Memory(const Schedule& schedule, bool in_place);

  [[nodiscard]] std::uint32_t slots() const { return slot_count_; }
  [[nodiscard]] std::uint32_t slot(Space space, std::uint32_t chunk) const;
  [[nodiscard]] bool is_writable(std::uint32_t slot) const { return writable_[slot]; }
  /// Chunks with the same number have the same size in bytes on all ranks; scratch chunks take any: kAnySize.
  [[nodiscard]] std::uint64_t size_of(std::uint32_t slot) const { return sizes_[slot]; }
  static constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

  [[nodiscard]] std::vector<Expression> initial(Expressions& expressions) const;

  /// What output chunk `chunk` must hold.
  struct Expected {
    bool is_reduction = false;  // over all ranks; else the one leaf
    Rank rank = 0;              // of the leaf
    std::uint32_t chunk = 0;    // of the leaves
  };
  [[nodiscard]] bool has_output() const;
  [[nodiscard]] Expected expected(std::uint32_t chunk) const;

 private:
  [[nodiscard]] bool has_input() const;
  /// The output chunk that an input chunk is the same memory as, or -1.
  [[nodiscard]] std::int64_t alias(std::uint32_t input_chunk) const;
  [[nodiscard]] std::uint64_t size_class(Space space, std::uint32_t chunk) const;

  Schedule schedule_;
  bool in_place_;
  std::uint32_t slot_count_ = 0;
  std::vector<std::uint32_t> input_;   // chunk -> slot
  std::vector<std::uint32_t> output_;  // chunk -> slot
  std::vector<std::uint32_t> scratch_;
  std::vector<bool> writable_;
  std::vector<std::uint64_t> sizes_;
};

}  // namespace neuron
