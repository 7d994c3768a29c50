// Endpoint: the Transport between processes of one host. Messages go through outboxes in the sender's own sealed
// memory, large payloads are read in place (BulkMode::pull). A resource; the Engine owns it, and its Doorbell outlives
// it. Thread: as Transport says; one thread of its own (Handover) exchanges descriptors and sleeps otherwise. Fails at
// creation where the kernel or a sandbox has no sealed memfd or no abstract sockets: then the fabric serves.
//
// The hot path of send is one copy into the outbox and a look at the peer's `asleep` word; of poll, one look per peer.
// That a sleeper misses nothing: the sender stores the stamp, then loads `asleep`; the sleeper stores `asleep`, then
// loads the stamps; all four seq_cst, so one of the two sees the other.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/wait_set.h"
#include "transport/shared_memory/block_pool.h"
#include "transport/shared_memory/handover.h"
#include "transport/transport.h"

namespace neuron::shared_memory {

struct Options {
  Rank rank = kNoRank;
  std::uint64_t nonce = 0;
  std::uint32_t local_ranks = 2;  // processes of the job on this host, this one included; at most kMaxSlots + 1
  std::string token{};            // the job's secret; must not be empty
  /// Hears of each new peer, in poll(); owns the descriptor, which becomes readable when the process ends. May be
  /// empty.
  std::function<void(Rank peer, int pidfd)> on_pidfd{};
  Nanoseconds handover_timeout = 2 * kSecond;
};

/// Says before the job is joined whether this machine has what an Endpoint needs. Errors: unavailable.
Status probe();

class Endpoint final : public Transport {
 public:
  /// Peers ring `doorbell` when they have sent something to an engine that sleeps.
  /// Errors: unavailable (what this machine lacks), invalid_argument.
  static Result<std::unique_ptr<Endpoint>> create(Options options, const Doorbell& doorbell,
                                                  std::optional<Listener> listener = std::nullopt);
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] TransportTraits traits() const override;

  [[nodiscard]] std::vector<std::byte> address() const override { return handover_->address(); }
  Status connect(Rank peer, std::span<const std::byte> address) override;
  [[nodiscard]] bool is_connected(Rank peer) const override { return peers_.contains(peer); }
  void disconnect(Rank peer) override;

  Posted send(Rank rank, const Header& header, std::span<const std::byte> payload) override;

  std::optional<Block> take_block() override { return pool_.take(); }
  void return_block(const Block& block) override { pool_.give_back(block); }
  SharedBlock share(const Block& block) override { return pool_.share(block); }
  const std::byte* view(Rank peer, const SharedBlock& block, std::size_t bytes) override;
  bool is_current(Rank peer, const SharedBlock& block) override;
  RemoteBlock expose(const Block& block) override;
  Posted write(Rank peer, const Block& from, std::size_t bytes, const RemoteBlock& to, std::uint32_t immediate,
               std::uint64_t cookie) override;

  bool poll(TransportEvents& events) override;
  [[nodiscard]] int wait_descriptor() const override { return -1; }  // the engine waits for its doorbell anyway
  bool arm() override;
  void disarm() override;

  [[nodiscard]] TrafficCount traffic(Rank peer) const override;
  void count_bulk(Rank peer, std::size_t bytes) override { traffic_[peer].bytes += bytes; }

 private:
  Endpoint(Options options, Arena arena, Descriptor pidfd);

  void take_arrivals();
  void add(std::unique_ptr<Peer> peer);
  void lose(Peer& peer, const Status& why);
  void report_losses(TransportEvents& events);
  int drain(Peer& peer, TransportEvents& events);
  void bury();
  bool has_something();

  struct Loss {
    Rank peer;
    Status why;
  };

  const Options options_;
  Arena arena_;
  const Descriptor pidfd_;  // of this process, to be handed over; empty where the kernel has none
  BlockPool pool_;
  SlotBook slots_;
  std::unordered_map<Rank, TrafficCount> traffic_;
  std::unordered_map<Rank, std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> polled_;                  // the same, in the order of polling
  std::vector<std::unique_ptr<Peer>> buried_;  // disconnected while poll() was looking at them
  std::vector<Loss> losses_;                   // to be told at the next poll
  std::size_t first_ = 0;                      // whose turn it is to be polled first
  bool is_polling_ = false;
  std::unique_ptr<Handover> handover_;  // last: its thread uses what is above
};

}  // namespace neuron::shared_memory
