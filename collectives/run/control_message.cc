#include "collectives/run/control_message.h"

#include "transport/base/decode.h"

namespace neuron {
namespace {

enum class Type : std::uint8_t { poison = 1, connect = 2 };

}  // namespace

std::vector<std::byte> encode(const ControlMessage& message) {
  Encoder encoder;
  if (const auto* poison = std::get_if<Poison>(&message)) {
    encoder.number(static_cast<std::uint8_t>(Type::poison)).number(poison->group).number(poison->epoch);
    encoder.number(static_cast<std::uint8_t>(poison->code)).text(poison->reason);
  } else {
    const auto& connect = std::get<Connect>(message);
    encoder.number(static_cast<std::uint8_t>(Type::connect)).number(static_cast<std::uint8_t>(connect.is_reply));
    encoder.number(static_cast<std::uint32_t>(connect.address.size())).bytes(connect.address).text(connect.error);
  }
  return encoder.take();
}

std::optional<ControlMessage> decode(std::span<const std::byte> bytes) {
  Decoder decoder(bytes);
  const auto type = static_cast<Type>(decoder.number<std::uint8_t>());
  if (type == Type::poison) {
    Poison poison;
    poison.group = decoder.number<std::uint64_t>();
    poison.epoch = decoder.number<std::uint32_t>();
    const auto code = decoder.number<std::uint8_t>();
    poison.code =
        code > 0 && code <= static_cast<std::uint8_t>(Code::internal) ? static_cast<Code>(code) : Code::aborted;
    poison.reason = decoder.text();
    return decoder.is_finished() ? std::optional<ControlMessage>(poison) : std::nullopt;
  }
  if (type == Type::connect) {
    Connect connect;
    connect.is_reply = decoder.number<std::uint8_t>() != 0;
    const auto address = decoder.bytes(decoder.number<std::uint32_t>());
    connect.address.assign(address.begin(), address.end());
    connect.error = decoder.text();
    return decoder.is_finished() ? std::optional<ControlMessage>(connect) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace neuron
