// SlotTable: small integers that name transfers on the wire. A handle is an index and a generation, so that a late or
// repeated message about an ended transfer finds nothing. A resource; one thread; allocates only when it grows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace neuron {

/// Handles have IndexBits + GenerationBits bits (at most 32); 0 is never a handle.
template <typename T, unsigned IndexBits, unsigned GenerationBits>
class SlotTable {
  static_assert(IndexBits + GenerationBits <= 32);

 public:
  static constexpr std::size_t kCapacity = std::size_t{1} << IndexBits;

  [[nodiscard]] bool is_full() const { return free_.empty() && slots_.size() == kCapacity; }
  [[nodiscard]] std::size_t size() const { return slots_.size() - free_.size(); }

  /// The table must not be full.
  std::uint32_t insert(T value) {
    std::uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(slots_.size());
      slots_.push_back({});
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.value = std::move(value);
    slot.is_used = true;
    return handle(index, slot.generation);
  }

  [[nodiscard]] T* find(std::uint32_t handle_value) {
    const std::uint32_t index = handle_value & (kCapacity - 1);
    if (index >= slots_.size() || !slots_[index].is_used) return nullptr;
    return handle(index, slots_[index].generation) == handle_value ? &slots_[index].value : nullptr;
  }

  void erase(std::uint32_t handle_value) {
    const std::uint32_t index = handle_value & (kCapacity - 1);
    Slot& slot = slots_[index];
    slot.value = T{};
    slot.is_used = false;
    slot.generation = (slot.generation + 1) & kGenerationMask;
    if (slot.generation == 0) slot.generation = 1;
    free_.push_back(index);
  }

  /// Calls visit(handle, T&) on each; visit may erase the element it is given.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].is_used) visit(handle(index, slots_[index].generation), slots_[index].value);
    }
  }

 private:
  static constexpr std::uint32_t kGenerationMask = (std::uint32_t{1} << GenerationBits) - 1;
  struct Slot {
    T value{};
    std::uint32_t generation = 1;
    bool is_used = false;
  };

  static std::uint32_t handle(std::uint32_t index, std::uint32_t generation) {
    return index | (generation << IndexBits);
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace neuron
