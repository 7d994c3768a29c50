// Abstract Unix sockets that keep packet boundaries and pass descriptors. Free functions over a Descriptor; any thread;
// nothing blocks. Abstract names do not cross network namespaces: two namespaces are two hosts to us.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/descriptor.h"
#include "transport/base/status.h"

namespace neuron::shared_memory {

inline constexpr std::size_t kMaxPacketBytes = 1024;
inline constexpr std::size_t kMaxPacketDescriptors = 3;

/// Errors: unavailable.
Result<Descriptor> listen_abstract(std::string_view name);
/// Errors: unavailable (the listener's queue is full: try again), refused (nobody listens there).
Result<Descriptor> connect_abstract(std::string_view name);
/// An empty Descriptor when nobody waits. Errors: unavailable (too many open files, for one: it stays in the queue).
Result<Descriptor> accept_connection(const Descriptor& listener);

/// Whether the process at the other end runs under our user. Errors: refused, says which user it is.
Status check_same_user(const Descriptor& socket);

/// One packet, with descriptors that the other end receives as its own. Errors: peer_lost.
Status send_packet(const Descriptor& socket, std::span<const std::byte> bytes, std::span<const int> descriptors = {});

struct Packet {
  std::vector<std::byte> bytes;         // empty: nothing there yet
  std::vector<Descriptor> descriptors;  // closed unless taken
};
/// Takes one packet. Descriptors are taken only if `with_descriptors`: from a stranger they never reach this process.
/// Errors: peer_lost (the other end has closed), refused (more than we take), unavailable (too many open files here).
Result<Packet> receive_packet(const Descriptor& socket, bool with_descriptors);

}  // namespace neuron::shared_memory
