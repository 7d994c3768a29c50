// UnexpectedStore: messages that arrived before their receive, copied out of the landing slot at once. Bounded by the
// credit of the peers. A resource of the Messenger; one thread; nodes are pooled in two sizes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/messaging/key_table.h"
#include "transport/transport.h"

namespace neuron {

struct Unexpected {
  MessageKey key;
  Header header;
  Transport* route = nullptr;
  std::vector<std::byte> payload;
};

class UnexpectedStore {
 public:
  [[nodiscard]] Unexpected* find(const MessageKey& key) const { return table_.find(key); }
  [[nodiscard]] std::size_t size() const { return table_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  void add(Transport& route, Rank source, const Header& header, std::span<const std::byte> payload) {
    auto& pool = pool_for(payload.size());
    std::unique_ptr<Unexpected> node;
    if (pool.empty()) {
      node = std::make_unique<Unexpected>();
    } else {
      node = std::move(pool.back());
      pool.pop_back();
    }
    node->key = MessageKey::of(header, source);
    node->header = header;
    node->route = &route;
    node->payload.assign(payload.begin(), payload.end());
    bytes_ += payload.size() + sizeof(Unexpected);
    table_.insert(*node.release());
  }

  /// Takes it out; give it to recycle() afterwards.
  std::unique_ptr<Unexpected> take(Unexpected& message) {
    table_.erase(message);
    bytes_ -= message.payload.size() + sizeof(Unexpected);
    return std::unique_ptr<Unexpected>(&message);
  }
  void recycle(std::unique_ptr<Unexpected> message) {
    auto& pool = pool_for(message->payload.size());
    if (pool.size() < kPooled) pool.push_back(std::move(message));
  }

  template <typename Matches>
  [[nodiscard]] std::vector<Unexpected*> select(Matches&& matches) const {
    return table_.select(matches);
  }

  UnexpectedStore() = default;
  ~UnexpectedStore() {
    for (Unexpected* message : table_.select([](const Unexpected&) { return true; })) delete message;
  }
  UnexpectedStore(const UnexpectedStore&) = delete;
  UnexpectedStore& operator=(const UnexpectedStore&) = delete;

 private:
  static constexpr std::size_t kSmall = 256;
  static constexpr std::size_t kPooled = 64;
  std::vector<std::unique_ptr<Unexpected>>& pool_for(std::size_t bytes) { return bytes <= kSmall ? small_ : large_; }

  KeyTable<Unexpected> table_;
  std::vector<std::unique_ptr<Unexpected>> small_;
  std::vector<std::unique_ptr<Unexpected>> large_;
  std::size_t bytes_ = 0;
};

}  // namespace neuron
