// Header: the 64 bytes in front of each message between two ranks, on every transport.
// A value; little endian, no padding; the layout is the wire protocol and is pinned by static_assert and a golden-bytes
// test.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "transport/base/rank.h"

namespace neuron {

/// Raised when ranks of two builds could not understand each other; compared when ranks join.
inline constexpr std::uint32_t kProtocolVersion = 1;

enum class MessageKind : std::uint8_t {
  invalid = 0,
  hello = 1,     // first message of a connection: both sides know each other
  eager = 2,     // payload follows the header; uses one credit unless flagged
  announce = 3,  // a large message waits at the sender; uses one credit unless flagged. Pull: payload is a SharedBlock
  grant = 4,     // receiver to sender: where the announced message goes; payload is a Grant
  data = 5,      // answers a grant by messages: `tag` is the offset; `length` 0: nothing will come, the sender gave up
  done = 6,      // receiver to sender: the announced block has been read; `sequence` is its generation
  credit = 7,    // carries nothing but `credits`
  want = 8,      // receiver to sender: a receive is posted for this key; send it though you have no credit
  question = 9,  // what keeps you from this operation?
  answer = 10,   // payload is an encoded answer
  refuse = 11,   // the point-to-point operation has ended here; `slot` 1: the receive, 0: the send; payload says why
};
inline constexpr std::uint8_t kMessageKinds = 12;

[[nodiscard]] std::string_view name_of(MessageKind kind);

namespace flag {
inline constexpr std::uint8_t kPointToPoint = 1;  // sequence counts per source, destination and tag
inline constexpr std::uint8_t kUncredited = 2;    // sent on a want: its landing returns no credit
inline constexpr std::uint8_t kStarved = 4;       // the sender has no block to stage in: say what you want
}  // namespace flag

struct Header {
  std::uint32_t nonce_check = 0;  // low half of the receiver's nonce: a message to a former process is dropped
  std::uint32_t source = 0;       // global rank
  std::uint32_t generation = 0;   // of the sender's incarnation in the job
  std::uint32_t epoch = 0;        // of the group
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;
  std::uint64_t length = 0;       // bytes of the whole message that this is a segment of
  std::uint64_t fingerprint = 0;  // of what must be equal on all ranks
  MessageKind kind = MessageKind::invalid;
  std::uint8_t flags = 0;
  std::uint16_t credits = 0;  // landing slots given back to the receiver of this message
  std::uint32_t slot = 0;     // announce, done: the sender's transfer; grant, data: the receiver's

  friend bool operator==(const Header&, const Header&) = default;
};

static_assert(sizeof(Header) == 64);
static_assert(std::is_trivially_copyable_v<Header>);
static_assert(offsetof(Header, group) == 16 && offsetof(Header, fingerprint) == 48 && offsetof(Header, slot) == 60);

/// Largest header plus payload of one message; larger ones are announced.
inline constexpr std::size_t kMessageBytes = 8192;
inline constexpr std::size_t kEagerBytes = kMessageBytes - sizeof(Header);
/// Largest single transfer: one stripe, one staging or landing block. The executor cuts everything to this.
inline constexpr std::size_t kBlockBytes = 256 * 1024;
/// Bytes granted and not yet landed, or staged and not yet read, for one peer.
inline constexpr std::size_t kBlocksInFlightPerPeer = 4;

}  // namespace neuron
