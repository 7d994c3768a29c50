#include "c10d_neuron/control/election.h"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "transport/base/log.h"

namespace neuron::control {
namespace {

constexpr auto kFirstRetry = std::chrono::milliseconds(2);
constexpr auto kLastRetry = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::seconds(5);

/// Calls `ready` once the peer's first byte is there, with an error if it does not come in time.
void when_readable(const std::shared_ptr<LocalSocket>& socket, std::function<void(const Error&)> ready) {
  auto timer = std::make_shared<asio::steady_timer>(socket->get_executor(), kPatience);
  timer->async_wait([socket](const Error& error) {
    if (!error) close_guarded(*socket);
  });
  socket->async_wait(LocalSocket::wait_read, [socket, timer, ready = std::move(ready)](const Error& error) {
    timer->cancel();
    ready(error);
  });
}

LinkPointer link_over(LocalSocket& socket) {
  return std::make_shared<Link>(StreamSocket(std::move(socket)), /*is_local=*/true);
}

}  // namespace

Error Door::open(const asio::local::stream_protocol::endpoint& endpoint) {
  Error error;
  acceptor_.open(endpoint.protocol(), error);
  if (error) return error;
  guard(acceptor_);
  acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) close_guarded(acceptor_);
  return error;
}

void Door::welcome(Welcome welcome) {
  welcome_ = std::move(welcome);
  if (!std::exchange(accepting_, true)) accept();
}

void Door::accept() {
  acceptor_.async_accept([self = shared_from_this()](const Error& error, LocalSocket socket) {
    if (!self->acceptor_.is_open()) return;
    if (!error) {
      guard(socket);
      self->examine(shared_socket(std::move(socket)));
      return self->accept();
    }
    log_once(LogLevel::error, "The leader of this host cannot accept connections: " + error.message() +
                                  ". Raise the limit of open files (ulimit -n).");
    self->retry_.expires_after(kLastRetry);
    self->retry_.async_wait([self](const Error& cancelled) {
      if (!cancelled && self->acceptor_.is_open()) self->accept();
    });
  });
}

void Door::examine(std::shared_ptr<LocalSocket> socket) {
  if (!is_same_user(*socket)) {
    log(LogLevel::warning, "Refused a process of another user that connected to this host's leader.");
    return close_guarded(*socket);
  }
  when_readable(socket, [self = shared_from_this(), socket](const Error& error) {
    if (error) return close_guarded(*socket);
    auto pidfd = std::make_shared<Result<Descriptor>>(receive_pidfd(*socket));
    if (!*pidfd || !send_pidfd(*socket)) return close_guarded(*socket);
    auto link = link_over(*socket);
    answer(link, self->identity_, [self, link, pidfd](const Status& status, Rank) {
      if (status.code() == Code::refused) log(LogLevel::warning, "Refused a local process: " + status.message() + ".");
      if (!status) return;
      if (!self->acceptor_.is_open() || !self->welcome_) return link->close();
      self->welcome_(link, std::move(**pidfd));
    });
  });
}

void Door::close() {
  retry_.cancel();
  close_guarded(acceptor_);
  welcome_ = nullptr;
}

void Election::cancel() {
  over_ = true;
  events_ = {};
  retry_.cancel();
}

void Election::attempt() {
  auto door = std::make_shared<Door>(io_, identity_);
  const Error error = door->open(endpoint_);
  if (error == asio::error::address_in_use) return connect();
  if (error) return try_again("this host's leader socket cannot be opened: " + error.message());
  over_ = true;
  const auto events = std::exchange(events_, {});
  events.on_lead(std::move(door));
}

void Election::connect() {
  auto socket = shared_socket(LocalSocket(io_));
  Error error;
  socket->open(endpoint_.protocol(), error);
  if (error) return try_again(error.message());
  guard(*socket);
  socket->non_blocking(true, error);
  socket->connect(endpoint_, error);  // a local connection is made or refused at once
  if (error || !is_same_user(*socket) || !send_pidfd(*socket)) {
    close_guarded(*socket);
    return try_again("this host's leader cannot be reached: " + (error ? error.message() : "another user's process"));
  }
  when_readable(socket, [self = shared_from_this(), socket](const Error& failure) {
    auto pidfd = std::make_shared<Result<Descriptor>>(failure ? Result<Descriptor>(Status(Code::timeout, "no answer"))
                                                              : receive_pidfd(*socket));
    if (self->over_ || !*pidfd) {
      close_guarded(*socket);
      if (!self->over_) self->try_again("this host's leader does not answer: " + pidfd->status().message());
      return;
    }
    auto link = link_over(*socket);
    greet(link, self->identity_, kNoRank, [self, link, pidfd](const Status& status, Rank) {
      if (self->over_) return link->close();
      if (!status) return self->try_again("this host's leader was not accepted: " + status.message());
      self->over_ = true;
      const auto events = std::exchange(self->events_, {});
      events.on_follow(link, std::move(**pidfd));
    });
  });
}

void Election::try_again(std::string why) {
  waiting_for_ = std::move(why);
  const auto delay = std::min(kFirstRetry * (1 << std::min(attempts_++, 6)), kLastRetry);
  retry_.expires_after(delay);
  retry_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error && !self->over_) self->attempt();
  });
}

}  // namespace neuron::control
