#include "transport/fabric/early_messages.h"

#include <algorithm>
#include <utility>

namespace neuron::fabric {
namespace {

constexpr std::size_t kMostBytes = 4 * 1024 * 1024;  // hellos of 40,000 ranks

std::size_t cost_of(const EarlyMessages::Message& message) { return sizeof message + message.payload.size(); }

auto from(Rank source) {
  return [source](const EarlyMessages::Message& message) { return message.source() == source; };
}

}  // namespace

bool EarlyMessages::keep(const Header& header, std::span<const std::byte> payload) {
  Message message{header, {payload.begin(), payload.end()}};
  if (message.source() < 0 || bytes_ + cost_of(message) > kMostBytes) return false;
  bytes_ += cost_of(message);
  messages_.push_back(std::move(message));
  return true;
}

bool EarlyMessages::has(Rank source) const { return std::any_of(messages_.begin(), messages_.end(), from(source)); }

std::optional<EarlyMessages::Message> EarlyMessages::take(Rank source) {
  const auto place = std::find_if(messages_.begin(), messages_.end(), from(source));
  if (place == messages_.end()) return std::nullopt;
  Message message = std::move(*place);
  messages_.erase(place);
  bytes_ -= cost_of(message);
  return message;
}

}  // namespace neuron::fabric
