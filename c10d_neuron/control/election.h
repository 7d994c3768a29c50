// Election: who speaks for a host. The first rank to bind the host's abstract socket leads, the others connect to it.
// Resources on Control's thread, held by shared pointers because operations are pending on them. An election does not
// fail: it tries until it has an outcome or is cancelled; `waiting_for` says why it has none yet.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/steady_timer.hpp>

#include "c10d_neuron/control/handshake.h"
#include "c10d_neuron/control/link.h"
#include "c10d_neuron/control/sockets.h"

namespace neuron::control {

/// The leader's listening socket. Whoever passes the handshake becomes a guest.
class Door : public std::enable_shared_from_this<Door> {
 public:
  using Welcome = std::function<void(LinkPointer guest, Descriptor pidfd)>;

  Door(asio::io_context& io, Identity identity) : acceptor_(io), retry_(io), identity_(std::move(identity)) {}
  ~Door() { close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Errors: address_in_use when another rank leads.
  Error open(const asio::local::stream_protocol::endpoint& endpoint);
  /// Who gets the guests from now on; accepting starts with the first call.
  void welcome(Welcome welcome);
  /// From then on the name is free for another leader.
  void close();

 private:
  void accept();
  void examine(std::shared_ptr<LocalSocket> socket);

  asio::local::stream_protocol::acceptor acceptor_;
  asio::steady_timer retry_;
  Identity identity_;
  Welcome welcome_;
  bool accepting_ = false;
};

class Election : public std::enable_shared_from_this<Election> {
 public:
  struct Events {
    std::function<void(std::shared_ptr<Door>)> on_lead;
    std::function<void(LinkPointer leader, Descriptor pidfd)> on_follow;
  };
  Election(asio::io_context& io, asio::local::stream_protocol::endpoint endpoint, Identity identity, Events events)
      : io_(io),
        retry_(io),
        endpoint_(std::move(endpoint)),
        identity_(std::move(identity)),
        events_(std::move(events)) {}

  void start() { attempt(); }
  void cancel();
  [[nodiscard]] const std::string& waiting_for() const { return waiting_for_; }

 private:
  void attempt();
  void connect();
  void try_again(std::string why);

  asio::io_context& io_;
  asio::steady_timer retry_;
  asio::local::stream_protocol::endpoint endpoint_;
  Identity identity_;
  Events events_;
  std::string waiting_for_;
  int attempts_ = 0;
  bool over_ = false;
};

}  // namespace neuron::control
