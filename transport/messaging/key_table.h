// KeyTable: finds an element by its MessageKey. Open addressing, linear probing, backward-shift deletion; allocates
// only when it grows. A resource that does not own its elements; one thread. T has a member `MessageKey key`. Keys are
// unique.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/messaging/message_key.h"

namespace neuron {

template <typename T>
class KeyTable {
 public:
  KeyTable() : slots_(kInitialSlots, nullptr) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] T* find(const MessageKey& key) const {
    if (size_ == 0) return nullptr;
    for (std::size_t i = home_of(key);; i = next(i)) {
      if (slots_[i] == nullptr || slots_[i]->key == key) return slots_[i];
    }
  }

  void insert(T& element) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    std::size_t i = home_of(element.key);
    while (slots_[i] != nullptr) {
      NEURON_CHECK(!(slots_[i]->key == element.key), "two messages of one key");
      i = next(i);
    }
    slots_[i] = &element;
    ++size_;
  }

  /// The element must be in the table.
  void erase(const T& element) {
    std::size_t hole = home_of(element.key);
    while (slots_[hole] != &element) {
      NEURON_CHECK(slots_[hole] != nullptr, "erasing an element that is not in the table");
      hole = next(hole);
    }
    for (std::size_t i = next(hole); slots_[i] != nullptr; i = next(i)) {
      if (distance(home_of(slots_[i]->key), i) < distance(hole, i)) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = nullptr;
    --size_;
  }

  /// Calls visit(T&) on every element; visit must not change the table.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (T* element : slots_) {
      if (element != nullptr) visit(*element);
    }
  }

  /// All elements for which `matches(T&)` holds.
  template <typename Matches>
  [[nodiscard]] std::vector<T*> select(Matches&& matches) const {
    std::vector<T*> found;
    for_each([&](T& element) {
      if (matches(element)) found.push_back(&element);
    });
    return found;
  }

 private:
  static constexpr std::size_t kInitialSlots = 64;

  [[nodiscard]] std::size_t home_of(const MessageKey& key) const { return key.hash() & (slots_.size() - 1); }
  [[nodiscard]] std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
  [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const {
    return (to - from) & (slots_.size() - 1);
  }

  void grow() {
    std::vector<T*> old(slots_.size() * 2, nullptr);
    old.swap(slots_);
    size_ = 0;
    for (T* element : old) {
      if (element != nullptr) insert(*element);
    }
  }

  std::vector<T*> slots_;
  std::size_t size_ = 0;
};

}  // namespace neuron
