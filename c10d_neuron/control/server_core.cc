#include "c10d_neuron/control/server_core.h"

#include "c10d_neuron/control/handshake.h"
#include "c10d_neuron/control/wire.h"
#include "transport/base/hmac.h"
#include "transport/base/log.h"

namespace neuron::control {
namespace {

constexpr auto kStrangerPatience = std::chrono::seconds(5);
constexpr auto kProgressPeriod = std::chrono::seconds(1);

}  // namespace

JoinStream::JoinStream(std::shared_ptr<ServerCore> core, std::string peer_address)
    : peer(std::move(peer_address)), core_(std::move(core)) {
  core_->mailbox->post([this] { core_->on_open(this); });
}

void JoinStream::read() {
  const std::lock_guard lock(mutex_);
  if (!finished_) StartRead(&incoming_);
}

void JoinStream::write(proto::ToLeader message) {
  if (closing_) return;
  queue_.push_back(std::move(message));
  if (queue_.size() == 1) start_next_write();
}

void JoinStream::start_next_write() {
  const std::lock_guard lock(mutex_);
  if (!finished_) StartWrite(&queue_.front());
}

void JoinStream::close_after_writes(grpc::Status status) {
  if (closing_) return;
  closing_ = true;
  closing_status_ = std::move(status);
  if (queue_.empty()) finish_once(closing_status_);
}

void JoinStream::OnReadDone(bool ok) {
  if (!ok) {
    core_->mailbox->post([this] { core_->on_end(this); });
    return;
  }
  core_->mailbox->post([this] {
    core_->on_message(this, incoming_);
    read();
  });
}

void JoinStream::OnWriteDone(bool ok) {
  core_->mailbox->post([this, ok] {
    queue_.pop_front();
    if (ok && !queue_.empty()) return start_next_write();
    if (closing_) finish_once(closing_status_);
  });
}

// Not through Control's thread: that may be what waits for the server to end.
void JoinStream::OnCancel() { finish_once(grpc::Status::CANCELLED); }

void JoinStream::OnDone() {
  core_->mailbox->post([this] {
    core_->on_end(this);
    delete this;
  });
}

void JoinStream::finish_once(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  Finish(status);
}

void ServerCore::on_open(JoinStream* stream) {
  stream->id = next_id_++;
  stream->nonce = make_nonce();
  proto::ToLeader message;
  auto* challenge = message.mutable_challenge();
  challenge->set_generation(setup_.generation);
  challenge->set_nonce(stream->nonce);
  challenge->set_complete(complete_);
  stream->write(std::move(message));
  if (complete_) return stream->close_after_writes(grpc::Status::OK);
  streams_[stream->id] = stream;
  stream->patience = std::make_unique<boost::asio::steady_timer>(io_, kStrangerPatience);
  stream->patience->async_wait([self = shared_from_this(), id = stream->id](const boost::system::error_code& error) {
    const auto found = self->streams_.find(id);
    if (error || found == self->streams_.end() || found->second->is_authenticated) return;
    found->second->close_after_writes({grpc::StatusCode::DEADLINE_EXCEEDED, "no proof within 5 s"});
  });
  stream->read();
}

void ServerCore::on_message(JoinStream* stream, const proto::FromLeader& message) {
  if (message.has_proof()) return authenticate(stream, message.proof());
  if (!stream->is_authenticated || complete_) return;
  if (message.has_gone()) return roster_.remove(message.gone().rank(), message.gone().nonce());
  if (!message.has_record()) return;
  const bool had_failed = !roster_.failure();
  const Status status = roster_.add(stream->id, participant_of(message.record()));
  if (!status) return had_failed ? tell(stream, status) : fail(status);
  if (roster_.is_complete()) complete();
}

void ServerCore::authenticate(JoinStream* stream, const proto::Proof& given) {
  const auto right = proof(setup_.token, kLeaderRole, setup_.generation, given.nonce(), stream->nonce, 0, 0);
  if (!equal_in_constant_time(right, given.mac())) {
    log(LogLevel::warning, "Refused a process at " + stream->peer + " that wants to join without the job's token.");
    return stream->close_after_writes({grpc::StatusCode::PERMISSION_DENIED, "wrong token"});
  }
  stream->is_authenticated = true;
  proto::ToLeader message;
  message.mutable_proof()->set_mac(
      proof(setup_.token, kServerRole, setup_.generation, stream->nonce, given.nonce(), 0, 0));
  stream->write(std::move(message));
  if (!roster_.failure()) return tell(stream, roster_.failure());
  if (complete_) stream->close_after_writes(grpc::Status::OK);
}

void ServerCore::tell(JoinStream* stream, const Status& failure) {
  proto::ToLeader message;
  *message.mutable_failure() = failure_of(failure);
  stream->write(std::move(message));
  stream->close_after_writes(grpc::Status::OK);
}

void ServerCore::fail(const Status& status) {
  if (complete_) return;
  roster_.fail(status);
  for (const auto& [id, stream] : streams_) {
    if (stream->is_authenticated) tell(stream, status);
  }
}

void ServerCore::complete() {
  complete_ = true;
  progress_timer_.cancel();
  const auto participants = roster_.participants();
  for (const proto::ShapePart& part : parts_of(participants)) {
    proto::ToLeader message;
    *message.mutable_part() = part;
    for (const auto& [id, stream] : streams_) {
      if (stream->is_authenticated) stream->write(message);
    }
  }
  for (const auto& [id, stream] : streams_) {
    if (stream->is_authenticated) stream->close_after_writes(grpc::Status::OK);
  }
}

void ServerCore::on_end(JoinStream* stream) {
  stream->patience.reset();
  if (streams_.erase(stream->id) > 0 && !complete_) roster_.remove_stream(stream->id);
  stream->close_after_writes(grpc::Status::OK);
}

bool ServerCore::admits(const proto::StatusRequest& request) const {
  const auto right = proof(setup_.token, kAskerRole, setup_.generation, request.nonce(), "", 0, 0);
  return equal_in_constant_time(right, request.mac());
}

void ServerCore::report_progress() {
  const auto missing = roster_.missing();
  const std::string text = missing.empty() ? "" : ranks_text(missing);
  if (!text.empty() && text != last_progress_) {
    last_progress_ = text;
    proto::ToLeader message;
    message.mutable_progress()->set_text(text);
    for (const auto& [id, stream] : streams_) {
      if (stream->is_authenticated) stream->write(message);
    }
  }
  progress_timer_.expires_after(kProgressPeriod);
  progress_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && !self->complete_ && self->roster_.failure()) self->report_progress();
  });
}

void ServerCore::stop_timers() { progress_timer_.cancel(); }

}  // namespace neuron::control
