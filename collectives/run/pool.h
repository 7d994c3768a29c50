// Pool: objects that are used again, with the capacity of their vectors, instead of freed. A resource; one thread.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace neuron {

template <typename T>
class Pool {
 public:
  T& take() {
    ++used_;
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      return *all_.back();
    }
    T* object = free_.back();
    free_.pop_back();
    return *object;
  }
  void give(T& object) {
    --used_;
    free_.push_back(&object);
  }
  [[nodiscard]] std::size_t used() const { return used_; }
  [[nodiscard]] std::size_t bytes() const { return all_.size() * sizeof(T); }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
  std::size_t used_ = 0;
};

}  // namespace neuron
