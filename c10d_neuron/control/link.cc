#include "c10d_neuron/control/link.h"

#include <algorithm>
#include <cstring>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace neuron::control {
namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kFramesPerWrite = 32;

}  // namespace

void Link::listen(OnFrame on_frame, OnClose on_close) {
  on_frame_ = std::make_shared<OnFrame>(std::move(on_frame));
  on_close_ = std::move(on_close);
}

void Link::read() {
  if (input_.size() < filled_ + kReadBytes) input_.resize(filled_ + kReadBytes);
  socket_.async_read_some(
      asio::buffer(input_.data() + filled_, input_.size() - filled_),
      [self = shared_from_this()](const Error& error, std::size_t length) { self->on_read(error, length); });
}

void Link::on_read(const Error& error, std::size_t length) {
  if (closed_) return;
  if (error) return fail(error);
  last_heard_ = SteadyClock().now();
  filled_ += length;
  if (!parse()) return fail(asio::error::make_error_code(asio::error::message_size));
  if (!closed_) read();
}

bool Link::parse() {
  std::size_t offset = 0;
  std::uint32_t length = 0;
  while (!closed_ && filled_ - offset >= sizeof length) {
    std::memcpy(&length, input_.data() + offset, sizeof length);
    if (length > largest_frame_) return false;
    if (filled_ - offset - sizeof length < length) break;
    proto::Frame frame;
    if (!frame.ParseFromArray(input_.data() + offset + sizeof length, static_cast<int>(length))) return false;
    offset += sizeof length + length;
    const auto handler = on_frame_;  // which may replace itself
    if (handler && *handler) (*handler)(frame);
  }
  std::memmove(input_.data(), input_.data() + offset, filled_ - offset);
  filled_ -= offset;
  return true;
}

void Link::send(Encoded frame) {
  if (closed_ || finishing_) return;
  queued_bytes_ += frame->size();
  queue_.push_back(std::move(frame));
  if (writing_ == 0) write();
}

void Link::write() {
  writing_ = std::min(queue_.size(), kFramesPerWrite);
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(writing_);
  for (std::size_t i = 0; i < writing_; ++i) buffers.emplace_back(queue_[i]->data(), queue_[i]->size());
  asio::async_write(socket_, buffers, [self = shared_from_this()](const Error& error, std::size_t) {
    if (self->closed_) return;
    if (error) return self->give_up_writing(error);
    for (; self->writing_ > 0; --self->writing_) {
      self->queued_bytes_ -= self->queue_.front()->size();
      self->queue_.pop_front();
    }
    if (!self->queue_.empty()) return self->write();
    Error ignored;
    if (self->finishing_) self->socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  });
}

void Link::finish() {
  if (closed_ || finishing_) return;
  finishing_ = true;
  Error ignored;
  if (writing_ == 0) socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

bool Link::has_unread() {
  Error error;
  return !closed_ && socket_.available(error) > 0 && !error;
}

// What the peer said last is still to be read; the read ends by itself.
void Link::give_up_writing(const Error& error) {
  write_error_ = error;
  finishing_ = true;
  queue_.clear();
  queued_bytes_ = writing_ = 0;
}

void Link::fail(const Error& error) {
  // The kernel tells an error once: if a write took it, the read sees a plain end.
  const bool write_knows = error == asio::error::eof && write_error_ && write_error_ != asio::error::broken_pipe;
  const Error reason = write_knows ? write_error_ : error;
  const auto on_close = std::move(on_close_);
  close();
  if (on_close) on_close(reason);
}

void Link::close() {
  if (closed_) return;
  closed_ = true;
  close_guarded(socket_);
  on_frame_.reset();
  on_close_ = nullptr;
}

}  // namespace neuron::control
