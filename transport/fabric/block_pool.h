// BlockPool: the blocks of a rail, kBlockBytes each, mapped and registered a slab at a time when first needed.
// A resource of the Rail, used under the engine's baton. `take` returns nothing when all blocks are out or memory is
// refused (logged once). A block that was returned while writes still read from it becomes free when the last of them
// ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/fabric/endpoint.h"
#include "transport/transport.h"

namespace neuron::fabric {

class BlockPool {
 public:
  /// `is_written_to`: peers write into the blocks; otherwise they only stage messages.
  BlockPool(const Endpoint& endpoint, std::size_t blocks, bool is_written_to);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::optional<Block> take();
  void give_back(std::uint32_t index);

  [[nodiscard]] RemoteBlock expose(std::uint32_t index) const;
  [[nodiscard]] std::byte* address(std::uint32_t index) const;
  [[nodiscard]] void* descriptor(std::uint32_t index) const;
  [[nodiscard]] std::size_t size() const { return uses_.size(); }

  void begin_write(std::uint32_t index);
  void end_write(std::uint32_t index);

 private:
  struct Use {
    bool is_taken = false;
    std::uint32_t writes = 0;
  };

  bool add_slab();

  const Endpoint& endpoint_;
  bool is_written_to_;
  std::vector<Region> slabs_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> free_;
};

}  // namespace neuron::fabric
