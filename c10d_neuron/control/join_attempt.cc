#include "c10d_neuron/control/join_attempt.h"

#include <algorithm>

#include "c10d_neuron/control/addresses.h"
#include "c10d_neuron/control/wire.h"
#include "transport/base/log.h"

namespace neuron::control {
namespace {

constexpr auto kFirstRedial = std::chrono::milliseconds(10);
constexpr auto kLastRedial = std::chrono::milliseconds(500);

}  // namespace

JoinAttempt::JoinAttempt(Runtime& runtime, Setup setup, Done done)
    : runtime_(runtime), setup_(std::move(setup)), done_(std::move(done)), redial_(runtime.io) {}

void JoinAttempt::start() {
  const Member& self = setup_.self.member;
  const Identity identity{self.rank, setup_.key.generation(), setup_.token};
  election_ = std::make_shared<Election>(
      runtime_.io, leader_endpoint(setup_.token, setup_.key.generation(), self.host_identity), identity,
      Election::Events{[self = shared_from_this()](std::shared_ptr<Door> door) { self->lead(std::move(door)); },
                       [self = shared_from_this()](LinkPointer link, Descriptor pidfd) {
                         self->follow(std::move(link), std::move(pidfd));
                       }});
  wait_for("the leader of this host");
  election_->start();
}

void JoinAttempt::lead(std::shared_ptr<Door> door) {
  if (!done_) return;
  door_ = std::move(door);
  leads_ = true;
  door_->welcome([self = shared_from_this()](LinkPointer link, Descriptor pidfd) {
    self->on_guest(std::move(link), std::move(pidfd));
  });
  dial();
}

void JoinAttempt::follow(LinkPointer link, Descriptor pidfd) {
  if (!done_) return link->close();
  leader_ = {std::move(link), std::move(pidfd)};
  leader_.link->listen([self = shared_from_this()](proto::Frame& frame) { self->on_leader_frame(frame); },
                       [self = shared_from_this()](const Error& error) {
                         self->end(End::again, {Code::unavailable, "this host's leader is gone: " + error.message()});
                       });
  proto::Frame frame;
  *frame.mutable_record() = record_of(setup_.self);
  leader_.link->send(frame);
  wait_for("rank 0, through rank " + std::to_string(leader_.link->peer) + ", the leader of this host");
}

void JoinAttempt::on_leader_frame(proto::Frame& frame) {
  switch (frame.body_case()) {
    case proto::Frame::kPart:
      return take_part(frame.part());
    case proto::Frame::kFailure:
      return end(End::failed, status_of(frame.failure()));
    case proto::Frame::kProgress:
      return wait_for(frame.progress().text());
    case proto::Frame::kRetry:
      return end(End::again, {Code::unavailable, frame.retry().text()});
    default:
      return;
  }
}

void JoinAttempt::on_guest(LinkPointer link, Descriptor pidfd) {
  Link* raw = link.get();
  raw->listen([self = shared_from_this(), raw](proto::Frame& frame) { self->on_guest_frame(raw, frame); },
              [self = shared_from_this(), raw](const Error&) { self->on_guest_gone(raw); });
  guests_.push_back({{std::move(link), std::move(pidfd)}, false, {}});
  proto::Frame frame;
  frame.mutable_progress()->set_text(waiting_for());
  raw->send(frame);
}

void JoinAttempt::on_guest_frame(Link* link, proto::Frame& frame) {
  const auto guest = std::find_if(guests_.begin(), guests_.end(),
                                  [&](const Guest& each) { return each.neighbour.link.get() == link; });
  if (guest == guests_.end() || !frame.has_record()) return;
  guest->record = frame.record();
  guest->record.set_leads(false);
  guest->has_record = true;
  if (!admitted_) return;
  proto::FromLeader message;
  *message.mutable_record() = guest->record;
  client_->say(std::move(message));
}

void JoinAttempt::on_guest_gone(Link* link) {
  const auto guest = std::find_if(guests_.begin(), guests_.end(),
                                  [&](const Guest& each) { return each.neighbour.link.get() == link; });
  if (guest == guests_.end()) return;
  if (admitted_ && guest->has_record) {
    proto::FromLeader message;
    message.mutable_gone()->set_rank(guest->record.rank());
    message.mutable_gone()->set_nonce(guest->record.nonce());
    client_->say(std::move(message));
  }
  guests_.erase(guest);
}

void JoinAttempt::dial() {
  const std::string address = setup_.addresses[next_address_ % setup_.addresses.size()];
  client_ = JoinClient::dial(
      runtime_, address, static_cast<std::uint16_t>(setup_.key.port()), setup_.key.generation(), setup_.token,
      {[self = shared_from_this()] { self->on_admitted(); },
       [self = shared_from_this()](const proto::ToLeader& message) { self->on_server_message(message); },
       [self = shared_from_this()](JoinClient::End how, const std::string& why) { self->on_dial_end(how, why); }});
}

void JoinAttempt::on_admitted() {
  admitted_ = true;
  dials_ = 0;
  wait_for("the other ranks");
  proto::FromLeader message;
  *message.mutable_record() = record_of(setup_.self);
  message.mutable_record()->set_leads(true);
  client_->say(std::move(message));
  for (const Guest& guest : guests_) {
    if (!guest.has_record) continue;
    proto::FromLeader of_guest;
    *of_guest.mutable_record() = guest.record;
    client_->say(std::move(of_guest));
  }
}

void JoinAttempt::on_server_message(const proto::ToLeader& message) {
  proto::Frame frame;
  if (message.has_part()) {
    *frame.mutable_part() = message.part();
    tell_guests(frame);
    take_part(message.part());
  } else if (message.has_failure()) {
    *frame.mutable_failure() = message.failure();
    tell_guests(frame);
    end(End::failed, status_of(message.failure()));
  } else if (message.has_progress()) {
    wait_for(message.progress().text() + " to join");
    *frame.mutable_progress() = message.progress();
    frame.mutable_progress()->set_text(waiting_for());
    tell_guests(frame);
  }
}

void JoinAttempt::on_dial_end(JoinClient::End how, const std::string& why) {
  if (!done_) return;
  admitted_ = false;
  const std::string address = endpoint_text(setup_.addresses[next_address_ % setup_.addresses.size()],
                                            static_cast<std::uint16_t>(setup_.key.port()));
  if (how == JoinClient::End::refused) {
    const bool has_token = !setup_.token.empty();
    return end(End::failed,
               {Code::refused,
                "Rank 0 (" + setup_.key.process() + ") at " + address + " refused " + rank_text(setup_.self.member) +
                    (has_token ? ": their tokens differ. Give all ranks the same C10D_NEURON_TOKEN_FILE."
                               : ": it uses a token file and this rank has none. Set C10D_NEURON_TOKEN_FILE.")});
  }
  wait_for("rank 0 (" + setup_.key.process() + ") at " + address +
           ", which cannot be reached: " + (why.empty() ? "it closed the connection" : why) +
           ". Check that rank 0 runs, that this address is reachable from here and no firewall is between, or name the "
           "right interface in C10D_NEURON_INTERFACE on rank 0");
  proto::Frame frame;
  frame.mutable_progress()->set_text(waiting_for());
  tell_guests(frame);
  next_address_ += 1;
  redial_.expires_after(std::min(kFirstRedial * (1 << std::min(dials_++, 6)), kLastRedial));
  redial_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error && self->done_) self->dial();
  });
}

void JoinAttempt::tell_guests(const proto::Frame& frame) {
  const auto encoded = encode(frame);
  for (const Guest& guest : guests_) guest.neighbour.link->send(encoded);
}

void JoinAttempt::take_part(const proto::ShapePart& part) {
  if (assembly_.add(part)) end(End::joined, {});
}

void JoinAttempt::abandon(const std::string& why) { end(End::again, {Code::unavailable, why}); }

void JoinAttempt::end(End how, Status failure) {
  if (!done_) return;
  const auto keep = shared_from_this();
  const auto done = std::exchange(done_, nullptr);
  election_->cancel();
  redial_.cancel();
  Outcome outcome{how, std::move(failure), {}};
  if (how == End::joined) {
    outcome.seat.participants = assembly_.take();
    outcome.seat.door = std::move(door_);
    for (Guest& guest : guests_) {
      if (guest.has_record) outcome.seat.neighbours.push_back(std::move(guest.neighbour));
    }
    if (leader_.link) outcome.seat.neighbours.push_back(std::move(leader_));
  } else {
    if (door_) door_->close();
    proto::Frame frame;
    frame.mutable_retry()->set_text(outcome.failure.message());
    if (how == End::again) tell_guests(frame);
    for (const Guest& guest : guests_) {
      guest.neighbour.link->listen(nullptr, nullptr);
      guest.neighbour.link->finish();
    }
    if (leader_.link) leader_.link->close();
  }
  guests_.clear();
  if (client_ && how == End::again) client_->cancel();
  if (client_) client_->detach();
  client_.reset();
  done(std::move(outcome));
}

void JoinAttempt::wait_for(std::string what) {
  const std::lock_guard lock(mutex_);
  waiting_for_ = std::move(what);
}

std::string JoinAttempt::waiting_for() const {
  const std::lock_guard lock(mutex_);
  return waiting_for_;
}

}  // namespace neuron::control
