// Greeting: what two processes say to each other while they hand over descriptors, and its bytes. Values; any thread.
//
//   connector                              listener
//   Opening {who, whom, challenge}    ->
//                                     <-   Reply {challenge, proof}
//   Introduction {proof, arena} + fds ->
//                                     <-   Introduction {proof, arena} + fds
//   Confirmation                      ->
//
// Either side may say Refusal instead, and why. A proof shows that its maker knows the job's token, without sending it;
// no descriptor goes to a process that has not proved that.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/status.h"
#include "transport/shared_memory/slots.h"

namespace neuron::shared_memory {

using Challenge = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

struct Opening {
  Identity from;
  Identity to;
  Challenge challenge{};
  friend bool operator==(const Opening&, const Opening&) = default;
};

struct Reply {
  Challenge challenge{};
  Proof proof{};
  friend bool operator==(const Reply&, const Reply&) = default;
};

/// With it travel the descriptors of the arena, the doorbell and, if `has_pidfd`, the process.
struct Introduction {
  Proof proof{};
  std::uint64_t arena_id = 0;
  std::uint64_t arena_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slot = 0;  // of the receiver of this, in the arena
  std::uint64_t salt = 0;  // of the outbox in that slot
  bool has_pidfd = false;
  friend bool operator==(const Introduction&, const Introduction&) = default;
};

struct Confirmation {
  friend bool operator==(const Confirmation&, const Confirmation&) = default;
};

struct Refusal {
  std::string reason;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

using Greeting = std::variant<Opening, Reply, Introduction, Confirmation, Refusal>;

std::vector<std::byte> encode(const Greeting& greeting);
/// Errors: refused (not one of ours), mismatch (another protocol version; names both).
Result<Greeting> decode(std::span<const std::byte> bytes);

/// Where a process can be asked for its descriptors: what Transport::address() encodes.
struct Address {
  Identity owner;
  std::string socket_name;
};
std::vector<std::byte> encode(const Address& address);
Result<Address> decode_address(std::span<const std::byte> bytes);

Challenge draw_challenge();

/// Everything that a proof speaks for.
struct Claim {
  std::string_view role;  // "connector" or "listener": a proof cannot be sent back to its maker
  Identity connector;
  Identity listener;
  Challenge connector_challenge{};
  Challenge listener_challenge{};
};
/// HMAC-SHA256 of the claim under the token.
Proof prove(std::string_view token, const Claim& claim);
/// Takes the same time for any two proofs.
bool is_same(const Proof& a, const Proof& b);

}  // namespace neuron::shared_memory
