// dial: a link to a rank of another host, over TCP, tried on each of its addresses in turn and proved by the handshake.
// A function that starts it on Control's thread; `done` is called there, once. The failure says how far it came.
#pragma once
#include <functional>
#include <string>

#include "c10d_neuron/control/handshake.h"
#include "c10d_neuron/control/participant.h"

namespace neuron::control {

struct Dialed {
  enum class How : std::uint8_t { linked, nobody_listens, unreachable };
  How how = How::unreachable;
  LinkPointer link;
  std::string why;  // "10.0.0.2:41234: Connection refused"
};

void dial(asio::io_context& io, const Participant& target, const Identity& self, std::function<void(Dialed)> done);

/// Whether an error on a link means that the way to the host is broken, rather than that the process has ended.
bool says_unreachable(const Error& error);

}  // namespace neuron::control
