#include "transport/fabric/block_pool.h"

#include <utility>

#include "transport/base/check.h"
#include "transport/base/log.h"

namespace neuron::fabric {
namespace {

constexpr std::size_t kBlocksPerSlab = 8;  // 2 MiB: one huge page, and few registrations
constexpr std::size_t kSlabBytes = kBlocksPerSlab * kBlockBytes;

}  // namespace

BlockPool::BlockPool(const Endpoint& endpoint, std::size_t blocks, bool is_written_to)
    : endpoint_(endpoint), is_written_to_(is_written_to), uses_(blocks) {
  NEURON_CHECK(blocks % kBlocksPerSlab == 0, "the pool is whole slabs");
  slabs_.reserve(blocks / kBlocksPerSlab);
  free_.reserve(blocks);
}

std::optional<Block> BlockPool::take() {
  if (free_.empty() && !add_slab()) return std::nullopt;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  uses_[index].is_taken = true;
  return Block{address(index), index};
}

void BlockPool::give_back(std::uint32_t index) {
  Use& use = uses_[index];
  NEURON_CHECK(use.is_taken, "a block is returned once");
  use.is_taken = false;
  if (use.writes == 0) free_.push_back(index);
}

void BlockPool::begin_write(std::uint32_t index) { ++uses_[index].writes; }

void BlockPool::end_write(std::uint32_t index) {
  Use& use = uses_[index];
  NEURON_CHECK(use.writes > 0, "a write ends once");
  if (--use.writes == 0 && !use.is_taken) free_.push_back(index);
}

RemoteBlock BlockPool::expose(std::uint32_t index) const {
  const Region& slab = slabs_[index / kBlocksPerSlab];
  const std::uint64_t offset = (index % kBlocksPerSlab) * kBlockBytes;
  const std::uint64_t base =
      endpoint_.uses_virtual_addresses() ? reinterpret_cast<std::uintptr_t>(slab.pages.address()) : 0;
  return {base + offset, fi_mr_key(slab.registration.get())};
}

std::byte* BlockPool::address(std::uint32_t index) const {
  return slabs_[index / kBlocksPerSlab].pages.address() + (index % kBlocksPerSlab) * kBlockBytes;
}

void* BlockPool::descriptor(std::uint32_t index) const { return slabs_[index / kBlocksPerSlab].descriptor(); }

bool BlockPool::add_slab() {
  if (slabs_.size() * kBlocksPerSlab >= uses_.size()) return false;
  auto region = is_written_to_ ? endpoint_.block_region(kSlabBytes) : endpoint_.message_region(kSlabBytes);
  if (!region) {
    log_once(LogLevel::warning, "The fabric goes on with fewer blocks: " + region.status().message());
    return false;
  }
  const auto first = static_cast<std::uint32_t>(slabs_.size() * kBlocksPerSlab);
  slabs_.push_back(std::move(*region));
  for (std::uint32_t i = kBlocksPerSlab; i > 0; --i) free_.push_back(first + i - 1);
  return true;
}

}  // namespace neuron::fabric
