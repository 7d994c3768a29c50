// FakeTransport: a Transport whose other side is the test, or another FakeTransport. It records what is sent, delivers
// what the test gives it, and counts its blocks, so that a leak shows. FakeEvents: what the Messenger said, and how the
// test wants it answered. One thread.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/messaging/messenger.h"

namespace neuron::testing {

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(Rank own, BulkMode mode, std::size_t block_count = 16, std::size_t slots = 256)
      : rank(own), traits_{"fake", mode, slots, block_count, true} {}

  struct Sent {
    Rank peer;
    Header header;
    std::vector<std::byte> payload;
  };
  struct Write {
    Rank peer;
    std::vector<std::byte> bytes;
    RemoteBlock to;
    std::uint32_t immediate;
    std::uint64_t cookie;
  };

  // ---- the test's side ----
  const Rank rank;
  std::deque<Sent> sent;      // since the last take_sent()
  std::deque<Write> written;  // not yet completed, when there is no other side
  std::map<Rank, FakeTransport*> others;
  std::set<Rank> unreachable;
  int refusals = 0;                                                   // posts to refuse before the next is taken
  std::function<bool()> refuses;                                      // asked at each post, if set
  std::vector<std::byte> lent = std::vector<std::byte>(kBlockBytes);  // pull: what a peer without other side shares
  bool is_lent_current = true;
  bool is_lent_mapped = true;

  void arrive(Rank source, const Header& header, std::vector<std::byte> payload = {}) {
    arriving_.push_back([=, this](TransportEvents& events) {
      if (!unreachable.contains(source)) events.on_message(source, header, payload);
    });
  }
  void land(std::uint32_t immediate) {
    arriving_.push_back([=](TransportEvents& events) { events.on_written(immediate); });
  }
  void lose(Rank peer) {
    arriving_.push_back([=](TransportEvents& events) { events.on_peer_lost(peer, {Code::peer_lost, "gone"}); });
  }
  /// The local half of a write is over.
  void complete_write() {
    const std::uint64_t cookie = written.front().cookie;
    written.pop_front();
    arriving_.push_back([=](TransportEvents& events) { events.on_write_done(cookie, {}); });
  }
  std::vector<Sent> take_sent(MessageKind kind) {
    std::vector<Sent> taken;
    for (Sent& one : sent) {
      if (one.header.kind == kind) taken.push_back(std::move(one));
    }
    std::erase_if(sent, [&](const Sent& one) { return one.header.kind == kind; });
    return taken;
  }
  [[nodiscard]] std::size_t sent_count(MessageKind kind) const {
    return static_cast<std::size_t>(
        std::count_if(sent.begin(), sent.end(), [&](const Sent& one) { return one.header.kind == kind; }));
  }
  [[nodiscard]] std::size_t blocks_in_use() const { return in_use_.size(); }
  [[nodiscard]] std::size_t most_blocks_in_use() const { return most_in_use_; }
  [[nodiscard]] bool has_arrivals() const { return !arriving_.empty(); }

  // ---- Transport ----
  [[nodiscard]] TransportTraits traits() const override { return traits_; }
  [[nodiscard]] std::vector<std::byte> address() const override { return {}; }
  Status connect(Rank /*peer*/, std::span<const std::byte> /*address*/) override { return {}; }
  [[nodiscard]] bool is_connected(Rank peer) const override { return !unreachable.contains(peer); }
  void disconnect(Rank peer) override { unreachable.insert(peer); }

  Posted send(Rank peer, const Header& header, std::span<const std::byte> payload) override {
    EXPECT_LE(payload.size(), kEagerBytes);
    if (const Posted posted = admit(peer); posted != Posted::done) return posted;
    sent.push_back({peer, header, {payload.begin(), payload.end()}});
    if (const auto other = others.find(peer); other != others.end()) {
      other->second->arrive(rank, header, {payload.begin(), payload.end()});
      sent.pop_back();
    }
    return Posted::done;
  }
  std::optional<Block> take_block() override {
    if (in_use_.size() == traits_.blocks) return std::nullopt;
    std::uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(memory_.size());
      memory_.push_back(std::make_unique<std::byte[]>(kBlockBytes));
    } else {
      index = free_.back();
      free_.pop_back();
    }
    in_use_.insert(index);
    most_in_use_ = std::max(most_in_use_, in_use_.size());
    return Block{memory_[index].get(), index};
  }
  void return_block(const Block& block) override {
    EXPECT_EQ(in_use_.erase(block.index), 1U) << "a block that is not in use was returned";
    ++generations_[block.index];
    free_.push_back(block.index);
  }
  SharedBlock share(const Block& block) override {
    EXPECT_TRUE(in_use_.contains(block.index));
    return {block.index, 0, 0, ++generations_[block.index]};
  }
  const std::byte* view(Rank peer, const SharedBlock& block, std::size_t bytes) override {
    if (!is_lent_mapped || bytes > kBlockBytes) return nullptr;
    const auto other = others.find(peer);
    if (other == others.end()) return lent.data();
    return block.arena < other->second->memory_.size() ? other->second->memory_[block.arena].get() : nullptr;
  }
  bool is_current(Rank peer, const SharedBlock& block) override {
    const auto other = others.find(peer);
    return other == others.end() ? is_lent_current : other->second->generations_[block.arena] == block.generation;
  }
  RemoteBlock expose(const Block& block) override {
    return {reinterpret_cast<std::uint64_t>(block.address), block.index};
  }
  Posted write(Rank peer, const Block& from, std::size_t bytes, const RemoteBlock& to, std::uint32_t immediate,
               std::uint64_t cookie) override {
    EXPECT_TRUE(in_use_.contains(from.index));
    if (const Posted posted = admit(peer); posted != Posted::done) return posted;
    written.push_back({peer, {from.address, from.address + bytes}, to, immediate, cookie});
    const auto other = others.find(peer);
    if (other == others.end()) return Posted::done;
    auto* target = reinterpret_cast<std::byte*>(to.address);  // NOLINT(performance-no-int-to-ptr): same process
    other->second->arriving_.push_back([=, payload = written.back().bytes](TransportEvents& events) {
      std::memcpy(target, payload.data(), payload.size());
      events.on_written(immediate);
    });
    complete_write();
    return Posted::done;
  }
  bool poll(TransportEvents& events) override {
    bool happened = false;
    for (std::size_t left = arriving_.size(); left > 0; --left) {
      const auto deliver = std::move(arriving_.front());
      arriving_.pop_front();
      deliver(events);
      happened = true;
    }
    return happened;
  }
  [[nodiscard]] int wait_descriptor() const override { return -1; }
  bool arm() override { return arriving_.empty(); }
  void disarm() override {}
  [[nodiscard]] TrafficCount traffic(Rank /*peer*/) const override { return {}; }

 private:
  Posted admit(Rank peer) {
    if (unreachable.contains(peer)) return Posted::lost;
    if (refusals > 0) return --refusals, Posted::again;
    return refuses && refuses() ? Posted::again : Posted::done;
  }

  const TransportTraits traits_;
  std::deque<std::function<void(TransportEvents&)>> arriving_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::uint32_t> free_;
  std::set<std::uint32_t> in_use_;
  std::map<std::uint32_t, std::uint64_t> generations_;
  std::size_t most_in_use_ = 0;
};

class FakeEvents final : public MessengerEvents {
 public:
  void on_sent(SendPost& post) override { sent.push_back(&post); }
  void on_received(ReceivePost& post, std::span<const std::byte> view) override {
    received.emplace_back(&post, std::vector<std::byte>(view.begin(), view.end()));
    if (keeps && post.is_lent()) kept[&post] = messenger->keep(post, view);
  }
  void on_mismatch(ReceivePost& post, const Header& /*header*/) override { mismatched.push_back(&post); }
  void on_view_lost(ReceivePost& post) override { view_lost.push_back(&post); }
  void on_withdrawn(ReceivePost& post) override { withdrawn.push_back(&post); }
  Disposition on_unmatched(Rank /*source*/, const Header& header) override {
    return disposes ? disposes(header) : Disposition::keep;
  }
  void on_question(Rank source, const Header&, std::span<const std::byte>) override { questions.push_back(source); }
  void on_answer(Rank source, const Header&, std::span<const std::byte>) override { answers.push_back(source); }
  void on_refused(Rank, const Header& header, std::span<const std::byte>) override { refused.push_back(header); }
  void on_connection_needed(Rank peer) override {
    connections_needed.push_back(peer);
    if (connects) connects(peer);
  }
  void on_peer_lost(Rank peer, Transport&, const Status& why) override {
    lost.push_back(peer);
    messenger->lose_peer(peer, why);
  }

  Messenger* messenger = nullptr;
  bool keeps = false;
  std::function<Disposition(const Header&)> disposes;
  std::function<void(Rank)> connects;
  std::vector<SendPost*> sent;
  std::vector<std::pair<ReceivePost*, std::vector<std::byte>>> received;
  std::map<ReceivePost*, const std::byte*> kept;
  std::vector<ReceivePost*> mismatched;
  std::vector<ReceivePost*> view_lost;
  std::vector<ReceivePost*> withdrawn;
  std::vector<Header> refused;
  std::vector<Rank> questions;
  std::vector<Rank> answers;
  std::vector<Rank> connections_needed;
  std::vector<Rank> lost;
};

/// Rank 0 with a Messenger over a fake transport; the other ranks are played by the test.
struct Station {
  static constexpr std::uint64_t kNonce = 0xAAAA'BBBB'0000'0000ULL;

  explicit Station(BulkMode mode, Rank world = 2, std::size_t blocks = 16, std::size_t slots = 256)
      : wire(0, mode, blocks, slots), messenger(options(world), events) {
    events.messenger = &messenger;
  }

  /// The rank is connected and its hello, with so many credits, has come.
  void meet(Rank peer, std::uint16_t credits = 0) {
    messenger.use_route(peer, wire);
    Header header;
    header.kind = MessageKind::hello;
    header.credits = credits;
    arrive(peer, header);
  }
  /// As if `source` had sent it to us.
  void arrive(Rank source, Header header, std::vector<std::byte> payload = {}) {
    header.nonce_check = static_cast<std::uint32_t>(kNonce);
    header.source = static_cast<std::uint32_t>(source);
    wire.arrive(source, header, std::move(payload));
    settle();
  }
  void settle() {
    for (int i = 0; i < 100 && (messenger.progress() || wire.has_arrivals()); ++i) {
    }
  }
  static MessageKey key(std::uint64_t sequence, Rank peer = 1, std::uint64_t group = 5) {
    return {group, sequence, 0, 0, peer, false};
  }
  /// A message of rank `source` that matches receive(sequence, bytes).
  static Header message(MessageKind kind, std::uint64_t sequence, std::size_t bytes, std::uint64_t group = 5) {
    Header header;
    header.kind = kind;
    header.length = bytes;
    header.fingerprint = 77;
    key(sequence, 0, group).write_to(header);
    return header;
  }
  void eager(Rank source, std::uint64_t sequence, std::size_t bytes = 8, std::uint8_t flags = 0,
             std::uint64_t group = 5) {
    Header header = message(MessageKind::eager, sequence, bytes, group);
    header.flags |= flags;
    arrive(source, header, std::vector<std::byte>(bytes, static_cast<std::byte>(sequence)));
  }
  void announce(Rank source, std::uint64_t sequence, std::size_t bytes, std::uint32_t slot) {
    Header header = message(MessageKind::announce, sequence, bytes);
    header.slot = slot;
    const bool is_pull = wire.traits().bulk == BulkMode::pull;
    std::vector<std::byte> payload;
    if (is_pull) {
      const SharedBlock shared{0, 0, 0, sequence + 1};
      payload.assign(reinterpret_cast<const std::byte*>(&shared), reinterpret_cast<const std::byte*>(&shared + 1));
    }
    arrive(source, header, payload);
  }
  void give_credit(Rank source, std::uint16_t credits, std::uint8_t flags = 0) {
    Header header;
    header.kind = MessageKind::credit;
    header.credits = credits;
    header.flags = flags;
    arrive(source, header);
  }
  void want(Rank source, std::uint64_t sequence) { arrive(source, message(MessageKind::want, sequence, 0)); }
  /// Answers an announcement: where it goes.
  void grant(Rank source, std::uint32_t announced, std::uint32_t transfer) {
    Header header;
    header.kind = MessageKind::grant;
    header.slot = transfer;
    std::vector<std::byte> payload(20);
    std::memcpy(payload.data() + 16, &announced, 4);
    arrive(source, header, payload);
  }
  /// The granted transfer arrives, whichever way the transport has.
  void deliver(Rank source, std::uint32_t transfer, std::size_t bytes) {
    if (wire.traits().bulk == BulkMode::write) {
      wire.land(transfer << 8);
      return settle();
    }
    for (std::size_t offset = 0; offset < bytes; offset += kEagerBytes) {
      Header header;
      header.kind = MessageKind::data;
      header.slot = transfer;
      header.tag = offset;
      header.length = std::min(kEagerBytes, bytes - offset);
      arrive(source, header, std::vector<std::byte>(header.length));
    }
  }

  FakeTransport wire;
  FakeEvents events;
  Messenger messenger;

 private:
  Messenger::Options options(Rank world) {
    Messenger::Options made;
    for (Rank rank = 0; rank < world; ++rank) made.nonces.push_back(kNonce + static_cast<std::uint64_t>(rank));
    made.transports = {&wire};
    return made;
  }
};

/// A send or receive with memory of its own.
struct TestSend : SendPost {
  TestSend(std::uint64_t sequence, std::size_t bytes, Rank peer = 1, std::uint64_t group = 5)
      : memory(bytes, static_cast<std::byte>(sequence)) {
    key = Station::key(sequence, peer, group);
    fingerprint = 77;
    message_bytes = bytes;
    source = {memory.data(), bytes, MemoryDomain::host};
  }
  std::vector<std::byte> memory;
};

struct TestReceive : ReceivePost {
  TestReceive(std::uint64_t sequence, std::size_t bytes, bool lent = false, Rank peer = 1, std::uint64_t group = 5)
      : memory(lent ? 0 : bytes) {
    key = Station::key(sequence, peer, group);
    fingerprint = 77;
    message_bytes = bytes;
    target = {lent ? nullptr : memory.data(), bytes, MemoryDomain::host};
  }
  std::vector<std::byte> memory;
};

}  // namespace neuron::testing
