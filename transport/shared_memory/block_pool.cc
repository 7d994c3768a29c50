#include "transport/shared_memory/block_pool.h"

#include <numeric>

#include "transport/base/check.h"

namespace neuron::shared_memory {
namespace {

// Odd: shared. Even: not shared, so a reference with an even generation is never current.
constexpr bool is_shared(std::uint64_t generation) { return generation % 2 == 1; }

std::optional<std::uint32_t> index_of(const PeerArena& arena, const SharedBlock& block, std::size_t bytes) {
  const Layout& layout = arena.layout();
  if (block.arena != 0 || bytes > kBlockBytes || block.offset < layout.blocks_offset()) return std::nullopt;
  const std::uint64_t distance = block.offset - layout.blocks_offset();
  if (distance / kBlockBytes >= layout.blocks() || distance % kBlockBytes + bytes > kBlockBytes) return std::nullopt;
  return static_cast<std::uint32_t>(distance / kBlockBytes);
}

}  // namespace

BlockPool::BlockPool(const Arena& arena)
    : arena_(arena), free_(arena.layout().blocks()), is_taken_(arena.layout().blocks(), false) {
  // From the last to the first, so that the first is taken first and untouched memory stays untouched.
  std::iota(free_.rbegin(), free_.rend(), 0U);
}

std::optional<Block> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  is_taken_[index] = true;
  return Block{arena_.at(arena_.layout().block_offset(index)), index};
}

void BlockPool::give_back(const Block& block) {
  NEURON_CHECK(block.index < is_taken_.size() && is_taken_[block.index], "a block was returned that was not taken");
  auto& generation = generation_of(block.index);
  // A read-modify-write, so that the writes of the block's next user stay behind it.
  if (is_shared(generation.load(std::memory_order_relaxed))) generation.fetch_add(1, std::memory_order_seq_cst);
  is_taken_[block.index] = false;
  free_.push_back(block.index);
}

SharedBlock BlockPool::share(const Block& block) {
  NEURON_CHECK(block.index < is_taken_.size() && is_taken_[block.index], "a block was shared that was not taken");
  auto& word = generation_of(block.index);
  const std::uint64_t before = word.load(std::memory_order_relaxed);
  const std::uint64_t generation = before + (is_shared(before) ? 2 : 1);
  word.store(generation, std::memory_order_release);
  return SharedBlock{0, 0, arena_.layout().block_offset(block.index), generation};
}

const std::byte* find_block(const PeerArena& arena, const SharedBlock& block, std::size_t bytes) {
  return index_of(arena, block, bytes) ? arena.at(block.offset) : nullptr;
}

bool is_block_current(const PeerArena& arena, const SharedBlock& block) {
  const auto index = index_of(arena, block, 0);
  if (!index || !is_shared(block.generation)) return false;
  order_earlier_reads();
  return word_at(arena.at(arena.layout().generation_offset(*index))).load(std::memory_order_acquire) ==
         block.generation;
}

}  // namespace neuron::shared_memory
