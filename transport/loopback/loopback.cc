#include "transport/loopback/loopback.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>

#include "transport/base/check.h"

namespace neuron::loopback {

/// What lies in a mailbox: a message, or a write that has left its sender.
struct Hub::Delivery {
  Rank source = kNoRank;
  Header header;
  std::vector<std::byte> payload;
  std::byte* target = nullptr;  // write: where the payload goes
  std::uint32_t immediate = 0;
};

struct Hub::Mailbox {
  std::mutex mutex;
  std::deque<Delivery> waiting;
  std::vector<Rank> lost;  // to be reported to the owner
  std::shared_ptr<Doorbell> doorbell;
  std::atomic<std::size_t> count{0};
  std::atomic<bool> asleep{false};
  std::atomic<bool> dead{false};

  void wake() {
    count.fetch_add(1);
    if (asleep.load()) doorbell->ring();
  }
};

class Endpoint final : public Transport {
 public:
  Endpoint(Hub& hub, Rank rank)
      : hub_(hub),
        mailbox_(*hub.mailboxes_[static_cast<std::size_t>(rank)]),
        rank_(rank),
        random_(Random::mix(hub.personality_.seed) + static_cast<std::uint64_t>(rank)),
        connected_(hub.mailboxes_.size(), false),
        traffic_(hub.mailboxes_.size()) {}

  [[nodiscard]] TransportTraits traits() const override {
    const Personality& personality = hub_.personality_;
    return {"loopback", personality.remote_write ? BulkMode::write : BulkMode::messages, personality.receive_slots,
            personality.blocks, true};
  }

  [[nodiscard]] std::vector<std::byte> address() const override { return {}; }
  Status connect(Rank peer, std::span<const std::byte> /*address*/) override {
    connected_[static_cast<std::size_t>(peer)] = true;
    return {};
  }
  [[nodiscard]] bool is_connected(Rank peer) const override { return connected_[static_cast<std::size_t>(peer)]; }
  void disconnect(Rank peer) override { connected_[static_cast<std::size_t>(peer)] = false; }

  Posted send(Rank peer, const Header& header, std::span<const std::byte> payload) override {
    NEURON_CHECK(payload.size() <= kEagerBytes, "message larger than the transport takes");
    count(peer, payload.size());
    return deliver(peer, {rank_, header, {payload.begin(), payload.end()}, nullptr, 0}, payload.size());
  }

  std::optional<Block> take_block() override {
    if (free_.empty()) {
      if (blocks_.size() == hub_.personality_.blocks) return std::nullopt;
      blocks_.push_back(std::make_unique<std::byte[]>(kBlockBytes));
      free_.push_back({blocks_.back().get(), static_cast<std::uint32_t>(blocks_.size() - 1)});
    }
    const Block block = free_.back();
    free_.pop_back();
    return block;
  }
  void return_block(const Block& block) override { free_.push_back(block); }
  SharedBlock share(const Block&) override { return {}; }
  const std::byte* view(Rank, const SharedBlock&, std::size_t) override { return nullptr; }
  bool is_current(Rank, const SharedBlock&) override { return false; }
  RemoteBlock expose(const Block& block) override { return {reinterpret_cast<std::uint64_t>(block.address), 0}; }

  Posted write(Rank peer, const Block& from, std::size_t bytes, const RemoteBlock& to, std::uint32_t immediate,
               std::uint64_t cookie) override {
    auto* target = reinterpret_cast<std::byte*>(to.address);  // NOLINT(performance-no-int-to-ptr): same process
    count(peer, bytes);
    const Posted posted = deliver(peer, {rank_, {}, {from.address, from.address + bytes}, target, immediate}, bytes);
    if (posted == Posted::done) written_.push_back(cookie);
    return posted;
  }

  bool poll(TransportEvents& events) override {
    bool happened = false;
    for (; !written_.empty(); happened = true) {
      const std::uint64_t cookie = written_.back();
      written_.pop_back();
      events.on_write_done(cookie, {});
    }
    for (int i = 0; i < kDeliveriesPerPoll && mailbox_.count.load() > 0; ++i) happened |= deliver_one(events);
    return happened;
  }

  [[nodiscard]] int wait_descriptor() const override { return -1; }
  bool arm() override {
    mailbox_.asleep.store(true);
    if (mailbox_.count.load() == 0 && written_.empty()) return true;
    mailbox_.asleep.store(false);
    return false;
  }
  void disarm() override { mailbox_.asleep.store(false); }
  [[nodiscard]] TrafficCount traffic(Rank peer) const override { return traffic_[static_cast<std::size_t>(peer)]; }

 private:
  static constexpr int kDeliveriesPerPoll = 16;

  void count(Rank peer, std::size_t bytes) {
    ++traffic_[static_cast<std::size_t>(peer)].messages;
    traffic_[static_cast<std::size_t>(peer)].bytes += bytes;
  }

  Posted deliver(Rank peer, Hub::Delivery delivery, std::size_t bytes) {
    const Personality& personality = hub_.personality_;
    Hub::Mailbox& box = *hub_.mailboxes_[static_cast<std::size_t>(peer)];
    const bool refused = personality.refuse_one_in > 0 && random_.one_in(personality.refuse_one_in);
    if (refused || box.dead.load() || mailbox_.dead.load()) {
      --traffic_[static_cast<std::size_t>(peer)].messages;
      traffic_[static_cast<std::size_t>(peer)].bytes -= bytes;
      return refused ? Posted::again : Posted::lost;
    }
    const std::lock_guard lock(box.mutex);
    if (delivery.target != nullptr && personality.payload_twice && random_.one_in(2)) {
      std::copy(delivery.payload.begin(), delivery.payload.end(), delivery.target);
    }
    box.waiting.push_back(std::move(delivery));
    box.wake();
    return Posted::done;
  }

  bool deliver_one(TransportEvents& events) {
    std::unique_lock lock(mailbox_.mutex);
    if (!mailbox_.lost.empty()) {
      const Rank lost = mailbox_.lost.back();
      mailbox_.lost.pop_back();
      mailbox_.count.fetch_sub(1);
      lock.unlock();
      events.on_peer_lost(lost, {Code::peer_lost, "rank " + std::to_string(lost) + " was killed"});
      return true;
    }
    if (mailbox_.waiting.empty()) return false;
    const std::size_t reach = std::min<std::size_t>(mailbox_.waiting.size(), hub_.personality_.reorder_window + 1);
    const auto chosen = mailbox_.waiting.begin() + static_cast<std::ptrdiff_t>(random_.below(reach));
    Hub::Delivery delivery = std::move(*chosen);
    mailbox_.waiting.erase(chosen);
    mailbox_.count.fetch_sub(1);
    if (delivery.target != nullptr) std::copy(delivery.payload.begin(), delivery.payload.end(), delivery.target);
    lock.unlock();
    if (delivery.target != nullptr) {
      events.on_written(delivery.immediate);
    } else {
      connected_[static_cast<std::size_t>(delivery.source)] = true;
      events.on_message(delivery.source, delivery.header, delivery.payload);
    }
    return true;
  }

  Hub& hub_;
  Hub::Mailbox& mailbox_;
  const Rank rank_;
  Random random_;
  std::vector<bool> connected_;
  std::vector<TrafficCount> traffic_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<Block> free_;
  std::vector<std::uint64_t> written_;  // cookies of writes whose block is free again
};

Hub::Hub(Rank world, Personality personality) : personality_(personality) {
  for (Rank rank = 0; rank < world; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>());
}

Hub::~Hub() = default;

std::unique_ptr<Transport> Hub::endpoint(Rank rank, std::shared_ptr<Doorbell> doorbell) {
  mailboxes_[static_cast<std::size_t>(rank)]->doorbell = std::move(doorbell);
  return std::make_unique<Endpoint>(*this, rank);
}

void Hub::kill(Rank rank) {
  mailboxes_[static_cast<std::size_t>(rank)]->dead.store(true);
  for (std::size_t other = 0; other < mailboxes_.size(); ++other) {
    if (static_cast<Rank>(other) == rank) continue;
    Mailbox& box = *mailboxes_[other];
    const std::lock_guard lock(box.mutex);
    box.lost.push_back(rank);
    box.wake();
  }
}

}  // namespace neuron::loopback
