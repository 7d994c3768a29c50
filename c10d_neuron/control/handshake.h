// Handshake: two ranks show each other over a new link that they know the token of this join, without saying it.
// Functions that start it on Control's thread; `done` is called once, there. On an error the link is closed. The link's
// listener is replaced: the caller sets its own in `done`. Errors: refused (a wrong token or another join), unavailable
// (the connection ended), timeout.
#pragma once
#include <functional>
#include <string>

#include "c10d_neuron/control/link.h"

namespace neuron::control {

struct Identity {
  Rank rank = kNoRank;
  std::uint64_t generation = 0;
  std::string token;
};

using HandshakeDone = std::function<void(const Status& status, Rank peer)>;

/// By the side that connected; `expected`: the rank that must answer, or kNoRank.
void greet(LinkPointer link, const Identity& self, Rank expected, HandshakeDone done);
/// By the side that accepted.
void answer(LinkPointer link, const Identity& self, HandshakeDone done);

/// The proof of either side: an HMAC over who says it and both sides' nonces, so that none can be said again elsewhere.
std::string proof(const std::string& token, std::string_view role, std::uint64_t generation, std::string_view own_nonce,
                  std::string_view peer_nonce, Rank own_rank, Rank peer_rank);
std::string make_nonce();

}  // namespace neuron::control
