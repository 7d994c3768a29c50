#include "transport/shared_memory/greeting.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "transport/base/decode.h"
#include "transport/base/hmac.h"
#include "transport/base/random.h"
#include "transport/header.h"

namespace neuron::shared_memory {
namespace {

constexpr std::uint32_t kGreetingMagic = 0x30646E68;  // "hnd0"
constexpr std::uint32_t kAddressMagic = 0x306D6873;   // "shm0"
constexpr std::size_t kMaxReasonBytes = 512;

void put(Encoder& out, const Identity& identity) { out.number(identity.rank).number(identity.nonce); }

Identity take_identity(Decoder& in) {
  Identity identity;
  identity.rank = in.number<Rank>();
  identity.nonce = in.number<std::uint64_t>();
  return identity;
}

std::array<std::byte, 32> take_32(Decoder& in) {
  std::array<std::byte, 32> out{};
  const auto raw = in.bytes(out.size());
  std::copy(raw.begin(), raw.end(), out.begin());
  return out;
}

void put(Encoder& out, const Opening& opening) {
  put(out, opening.from);
  put(out, opening.to);
  out.bytes(opening.challenge);
}

void put(Encoder& out, const Reply& reply) { out.bytes(reply.challenge).bytes(reply.proof); }

void put(Encoder& out, const Introduction& introduction) {
  out.bytes(introduction.proof).number(introduction.arena_id).number(introduction.arena_bytes);
  out.number(introduction.slots).number(introduction.slot).number(introduction.salt);
  out.number(static_cast<std::uint8_t>(introduction.has_pidfd));
}

void put(Encoder&, const Confirmation&) {}

void put(Encoder& out, const Refusal& refusal) {
  out.text(std::string_view(refusal.reason).substr(0, kMaxReasonBytes));
}

Opening take_opening(Decoder& in) {
  Opening opening;
  opening.from = take_identity(in);
  opening.to = take_identity(in);
  opening.challenge = take_32(in);
  return opening;
}

Reply take_reply(Decoder& in) {
  Reply reply;
  reply.challenge = take_32(in);
  reply.proof = take_32(in);
  return reply;
}

Introduction take_introduction(Decoder& in) {
  Introduction out;
  out.proof = take_32(in);
  out.arena_id = in.number<std::uint64_t>();
  out.arena_bytes = in.number<std::uint64_t>();
  out.slots = in.number<std::uint32_t>();
  out.slot = in.number<std::uint32_t>();
  out.salt = in.number<std::uint64_t>();
  out.has_pidfd = in.number<std::uint8_t>() != 0;
  return out;
}

Status not_ours() { return {Code::refused, "what it says is not c10d-neuron's hand-over"}; }

}  // namespace

std::vector<std::byte> encode(const Greeting& greeting) {
  Encoder out;
  out.number(kGreetingMagic).number(kProtocolVersion).number(static_cast<std::uint8_t>(greeting.index()));
  std::visit([&out](const auto& said) { put(out, said); }, greeting);
  return out.take();
}

Result<Greeting> decode(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  if (in.number<std::uint32_t>() != kGreetingMagic) return not_ours();
  const auto version = in.number<std::uint32_t>();
  if (in.is_ok() && version != kProtocolVersion) {
    return Status(Code::mismatch, "it speaks protocol version " + std::to_string(version) + ", we speak " +
                                      std::to_string(kProtocolVersion) + ": install one version everywhere");
  }
  Greeting greeting;
  switch (in.number<std::uint8_t>()) {
    case 0:
      greeting = take_opening(in);
      break;
    case 1:
      greeting = take_reply(in);
      break;
    case 2:
      greeting = take_introduction(in);
      break;
    case 3:
      greeting = Confirmation{};
      break;
    case 4:
      greeting = Refusal{in.text()};
      break;
    default:
      return not_ours();
  }
  if (!in.is_finished()) return not_ours();
  return greeting;
}

std::vector<std::byte> encode(const Address& address) {
  Encoder out;
  out.number(kAddressMagic);
  put(out, address.owner);
  out.text(address.socket_name);
  return out.take();
}

Result<Address> decode_address(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Address address;
  const bool is_ours = in.number<std::uint32_t>() == kAddressMagic;
  address.owner = take_identity(in);
  address.socket_name = in.text();
  constexpr std::size_t kLongestName = 100;
  if (!is_ours || !in.is_finished() || address.socket_name.empty() || address.socket_name.size() > kLongestName) {
    return Status(Code::invalid_argument, "not a shared memory address");
  }
  return address;
}

Challenge draw_challenge() {
  Challenge challenge{};
  for (std::size_t i = 0; i < challenge.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t piece = random_nonce();
    std::memcpy(challenge.data() + i, &piece, sizeof piece);
  }
  return challenge;
}

Proof prove(std::string_view token, const Claim& claim) {
  Encoder text;
  text.text(claim.role);
  put(text, claim.connector);
  put(text, claim.listener);
  text.bytes(claim.connector_challenge).bytes(claim.listener_challenge);
  const auto message = text.take();
  return std::bit_cast<Proof>(hmac_sha256(token, {reinterpret_cast<const char*>(message.data()), message.size()}));
}

bool is_same(const Proof& a, const Proof& b) {
  return equal_in_constant_time(view_of(std::bit_cast<Mac>(a)), view_of(std::bit_cast<Mac>(b)));
}

}  // namespace neuron::shared_memory
