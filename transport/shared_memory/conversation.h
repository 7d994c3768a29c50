// Conversation: one hand-over with one process over a connected socket, as a state machine that never blocks.
// A resource; the Handover owns it and calls it on its thread. Every way it can fail is a Status; the other end is told
// why.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "transport/base/clock.h"
#include "transport/shared_memory/peer.h"
#include "transport/shared_memory/unix_socket.h"

namespace neuron::shared_memory {

/// What this process tells others, and the secret by which it knows them. Referenced objects outlive the Handover.
struct Host {
  Identity self;
  std::string token;
  const Arena& arena;
  SlotBook& slots;
  int doorbell = -1;
  int pidfd = -1;  // of this process; -1 where the kernel has none
};

class Conversation {
 public:
  enum class Outcome : std::uint8_t { open, established, failed };

  /// We connected to `peer`: says the opening.
  static std::unique_ptr<Conversation> connector(const Host& host, const Identity& peer, Descriptor socket);
  /// Somebody connected to us: listens.
  static std::unique_ptr<Conversation> listener(const Host& host, Descriptor socket);

  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// Reads what has arrived and answers it.
  Outcome advance();
  /// Ends it and tells the other end why.
  void refuse(const Status& why);

  [[nodiscard]] bool is_connector() const { return is_connector_; }
  /// kNoRank until the other end has said who it is; not proved before `established`.
  [[nodiscard]] const Identity& peer() const { return peer_; }
  [[nodiscard]] int descriptor() const { return socket_.number(); }
  /// After `failed`.
  [[nodiscard]] const Status& why() const { return why_; }
  /// After `established`, once.
  [[nodiscard]] std::unique_ptr<Peer> take_peer() { return std::move(made_); }

 private:
  enum class Awaits : std::uint8_t { opening, reply, introduction, confirmation, nothing };

  Conversation(const Host& host, bool is_connector, Descriptor socket);

  Status handle(const Greeting& greeting, std::vector<Descriptor> descriptors);
  Status handle_opening(const Opening& opening);
  Status handle_reply(const Reply& reply);
  Status handle_introduction(const Introduction& introduction, std::vector<Descriptor> descriptors);
  Status introduce_ourselves();
  Status say(const Greeting& greeting, std::span<const int> descriptors = {});
  [[nodiscard]] Proof proof_of(bool by_connector) const;

  const Host& host_;
  const bool is_connector_;
  Descriptor socket_;
  Awaits awaits_;
  Identity peer_;
  Challenge our_challenge_;
  Challenge their_challenge_{};
  std::shared_ptr<const Slot> slot_;
  std::unique_ptr<Peer> made_;
  Status why_;
};

}  // namespace neuron::shared_memory
