#include "transport/shared_memory/conversation.h"

#include <array>
#include <utility>
#include <variant>

namespace neuron::shared_memory {
namespace {

Status out_of_turn() { return {Code::refused, "it spoke out of turn in the hand-over"}; }

}  // namespace

Conversation::Conversation(const Host& host, bool is_connector, Descriptor socket)
    : host_(host),
      is_connector_(is_connector),
      socket_(std::move(socket)),
      awaits_(is_connector ? Awaits::reply : Awaits::opening),
      our_challenge_(draw_challenge()) {}

std::unique_ptr<Conversation> Conversation::connector(const Host& host, const Identity& peer, Descriptor socket) {
  std::unique_ptr<Conversation> made(new Conversation(host, true, std::move(socket)));
  made->peer_ = peer;
  made->why_ = check_same_user(made->socket_);
  if (made->why_.is_ok()) made->why_ = made->say(Opening{host.self, peer, made->our_challenge_});
  return made;
}

std::unique_ptr<Conversation> Conversation::listener(const Host& host, Descriptor socket) {
  std::unique_ptr<Conversation> made(new Conversation(host, false, std::move(socket)));
  made->why_ = check_same_user(made->socket_);
  return made;
}

Conversation::Outcome Conversation::advance() {
  while (why_.is_ok() && awaits_ != Awaits::nothing) {
    auto packet = receive_packet(socket_, awaits_ == Awaits::introduction);
    if (packet.is_ok() && packet->bytes.empty()) return Outcome::open;
    if (!packet.is_ok()) {
      why_ = packet.status();
      break;
    }
    const auto greeting = decode(packet->bytes);
    const Status status = greeting.is_ok() ? handle(*greeting, std::move(packet->descriptors)) : greeting.status();
    if (!status.is_ok()) refuse(status);
  }
  return why_.is_ok() ? Outcome::established : Outcome::failed;
}

void Conversation::refuse(const Status& why) {
  if (!why_.is_ok()) return;
  why_ = why;
  [[maybe_unused]] const Status told = say(Refusal{why.message()});  // a courtesy: it may be gone
}

Status Conversation::handle(const Greeting& greeting, std::vector<Descriptor> descriptors) {
  if (const auto* refusal = std::get_if<Refusal>(&greeting)) {
    return {Code::refused, "it refused us: " + refusal->reason};
  }
  if (const auto* opening = std::get_if<Opening>(&greeting); opening != nullptr && awaits_ == Awaits::opening) {
    return handle_opening(*opening);
  }
  if (const auto* reply = std::get_if<Reply>(&greeting); reply != nullptr && awaits_ == Awaits::reply) {
    return handle_reply(*reply);
  }
  if (const auto* introduction = std::get_if<Introduction>(&greeting);
      introduction != nullptr && awaits_ == Awaits::introduction) {
    return handle_introduction(*introduction, std::move(descriptors));
  }
  if (!std::holds_alternative<Confirmation>(greeting) || awaits_ != Awaits::confirmation) return out_of_turn();
  awaits_ = Awaits::nothing;
  return {};
}

Status Conversation::handle_opening(const Opening& opening) {
  peer_ = opening.from;
  if (!(opening.to == host_.self)) return {Code::refused, "it looked for another process than this one"};
  if (peer_.rank == host_.self.rank) return {Code::refused, "it says that it is our own rank"};
  their_challenge_ = opening.challenge;
  awaits_ = Awaits::introduction;
  return say(Reply{our_challenge_, proof_of(false)});
}

Status Conversation::handle_reply(const Reply& reply) {
  their_challenge_ = reply.challenge;
  if (!is_same(reply.proof, proof_of(false))) return {Code::refused, "it does not know the job's token"};
  awaits_ = Awaits::introduction;
  return introduce_ourselves();
}

Status Conversation::introduce_ourselves() {
  auto slot = host_.slots.lease(peer_);
  if (!slot.is_ok()) return slot.status();
  slot_ = std::move(*slot);
  Introduction ours;
  ours.proof = proof_of(is_connector_);
  ours.arena_id = host_.arena.id();
  ours.arena_bytes = host_.arena.layout().bytes;
  ours.slots = host_.arena.layout().slots;
  ours.slot = slot_->index;
  ours.salt = slot_->salt;
  ours.has_pidfd = host_.pidfd >= 0;
  const std::array<int, 3> descriptors = {host_.arena.descriptor(), host_.doorbell, host_.pidfd};
  return say(ours, std::span(descriptors).first(ours.has_pidfd ? 3 : 2));
}

Status Conversation::handle_introduction(const Introduction& introduction, std::vector<Descriptor> descriptors) {
  if (!is_same(introduction.proof, proof_of(!is_connector_))) {
    return {Code::refused, "it does not know the job's token"};
  }
  if (descriptors.size() != (introduction.has_pidfd ? 3U : 2U)) {
    return {Code::refused, "it did not hand over its descriptors"};
  }
  const Layout layout{introduction.slots, introduction.arena_bytes};
  if (introduction.slot >= introduction.slots) return {Code::refused, "its arena's layout makes no sense"};
  auto arena = PeerArena::map(descriptors[0], introduction.arena_id, layout, peer_.rank, peer_.nonce);
  if (!arena.is_ok()) return arena.status();

  if (!is_connector_) {
    const Status introduced = introduce_ourselves();
    if (!introduced.is_ok()) return introduced;
  }
  made_ = std::make_unique<Peer>(host_.arena, std::move(*arena), introduction, slot_, std::move(descriptors[1]),
                                 introduction.has_pidfd ? std::move(descriptors[2]) : Descriptor());
  awaits_ = is_connector_ ? Awaits::nothing : Awaits::confirmation;
  return is_connector_ ? say(Confirmation{}) : Status();
}

Status Conversation::say(const Greeting& greeting, std::span<const int> descriptors) {
  return send_packet(socket_, encode(greeting), descriptors);
}

Proof Conversation::proof_of(bool by_connector) const {
  Claim claim;
  claim.role = by_connector ? "connector" : "listener";
  claim.connector = is_connector_ ? host_.self : peer_;
  claim.listener = is_connector_ ? peer_ : host_.self;
  claim.connector_challenge = is_connector_ ? our_challenge_ : their_challenge_;
  claim.listener_challenge = is_connector_ ? their_challenge_ : our_challenge_;
  return prove(host_.token, claim);
}

}  // namespace neuron::shared_memory
