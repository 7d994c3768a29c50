// BlockPool: the blocks of our own arena, and the generation by which a reader knows that one is still what it was
// shared as. A resource; the Endpoint owns it; the engine's thread. take() finds none when all are in use.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/shared_memory/arena.h"
#include "transport/transport.h"

namespace neuron::shared_memory {

class BlockPool {
 public:
  explicit BlockPool(const Arena& arena);

  /// The block given back last comes first: it is still in the cache.
  std::optional<Block> take();
  /// Ends what was shared: a reader that has not finished finds that the block is not current any more, and finds it
  /// before the block is written again.
  void give_back(const Block& block);
  SharedBlock share(const Block& block);

 private:
  [[nodiscard]] Word& generation_of(std::uint32_t index) const {
    return word_at(arena_.at(arena_.layout().generation_offset(index)));
  }

  const Arena& arena_;
  std::vector<std::uint32_t> free_;
  std::vector<bool> is_taken_;
};

/// A reader's side: where the block lies in its owner's arena, or null when it is not inside one.
const std::byte* find_block(const PeerArena& arena, const SharedBlock& block, std::size_t bytes);
/// Whether the owner has neither withdrawn nor shared it anew; call after the last read.
bool is_block_current(const PeerArena& arena, const SharedBlock& block);

}  // namespace neuron::shared_memory
