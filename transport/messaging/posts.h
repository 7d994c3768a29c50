// SendPost and ReceivePost: one segment of a message each, at most kBlockBytes, posted by the executor to the
// Messenger. Resources that the executor owns and that must outlive their completion or cancellation. One thread: the
// driver.
#pragma once
#include <array>
#include <cstdint>

#include "transport/base/buffer.h"
#include "transport/base/intrusive_list.h"
#include "transport/messaging/message_key.h"
#include "transport/transport.h"

namespace neuron {

struct SendPost : ListLink<> {
  enum class State : std::uint8_t { idle, queued, announced, granted };

  MessageKey key;  // key.peer: the destination
  std::uint64_t fingerprint = 0;
  std::uint64_t message_bytes = 0;  // of the whole message that this is a segment of
  Buffer source;
  void* owner = nullptr;  // the executor's

  // The Messenger's own.
  State state = State::idle;
  bool is_wanted = false;      // a receive is posted for it: needs no credit
  Block block;                 // staged, waiting for the transport to take the announcement
  std::uint32_t transfer = 0;  // handle while announced
};

struct ReceivePost : ListLink<> {
  enum class State : std::uint8_t { idle, posted, waiting_for_block, landing, kept };

  MessageKey key;  // key.peer: the source
  std::uint64_t fingerprint = 0;
  std::uint64_t message_bytes = 0;  // as the sender must say it
  /// Where the bytes go. A null address with bytes > 0: lent, the completion carries a view instead.
  Buffer target;
  void* owner = nullptr;

  // The Messenger's own.
  State state = State::idle;
  bool was_wanted = false;          // a `want` has been sent for it
  Transport* route = nullptr;       // the transport that the message came by
  Header header;                    // of the matched message
  SharedBlock shared;               // pull: what is being read
  Block block;                      // write: where it landed, while kept
  const std::byte* view = nullptr;  // kept bytes
  std::byte* copy = nullptr;        // kept bytes in memory of our own: small_copy or the heap
  std::array<std::byte, 64> small_copy;
  std::uint32_t landing = 0;  // handle of the incoming transfer

  [[nodiscard]] bool is_lent() const { return target.address == nullptr; }
};

}  // namespace neuron
