// What engines tell one another beside the data path: encoded here, carried by the ControlChannel. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "transport/base/rank.h"
#include "transport/base/status.h"

namespace neuron {

/// The group's operations of `epoch` have failed; the group goes on with the next.
struct Poison {
  std::uint64_t group = 0;
  std::uint32_t epoch = 0;
  Code code = Code::aborted;
  std::string reason;
};

/// "Here is my fabric address; insert it and send me yours" (is_reply: no answer wanted).
struct Connect {
  bool is_reply = false;
  std::vector<std::byte> address;
  std::string error;  // reply only: why there is no fabric on this side
};

using ControlMessage = std::variant<Poison, Connect>;

std::vector<std::byte> encode(const ControlMessage& message);
/// Nothing for bytes that are no message of ours.
std::optional<ControlMessage> decode(std::span<const std::byte> bytes);

}  // namespace neuron
