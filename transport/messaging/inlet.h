// Messenger::Inlet: binds a transport's events to the Messenger, and counts the transport's blocks that are in use, so
// that landing never takes the blocks that sending needs and kept views never take all that landing needs. A resource
// of the Messenger; one thread.
#pragma once
#include "transport/messaging/messenger.h"

namespace neuron {

class Messenger::Inlet final : public TransportEvents {
 public:
  Inlet(Messenger& messenger, Transport& transport)
      : route(transport), traits(transport.traits()), messenger_(messenger) {}

  void on_message(Rank source, const Header& header, std::span<const std::byte> payload) override {
    messenger_.on_message(route, source, header, payload);
  }
  void on_written(std::uint32_t immediate) override { messenger_.on_written(route, immediate); }
  void on_write_done(std::uint64_t cookie, const Status& /*a lost peer is reported apart*/) override {
    messenger_.on_write_done(route, cookie);
  }
  void on_peer_lost(Rank peer, const Status& why) override { messenger_.events_.on_peer_lost(peer, route, why); }

  [[nodiscard]] std::size_t landing_limit() const { return traits.blocks / 2; }

  Transport& route;
  const TransportTraits traits;
  std::size_t staging = 0;   // blocks in use by sends
  std::size_t landing = 0;   // blocks granted, kept ones included
  std::size_t kept = 0;      // of them, and of views into peers' blocks
  std::uint32_t window = 0;  // credit granted to all peers

 private:
  Messenger& messenger_;
};

}  // namespace neuron
