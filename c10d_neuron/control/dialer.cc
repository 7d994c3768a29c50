#include "c10d_neuron/control/dialer.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>

#include "c10d_neuron/control/addresses.h"

namespace neuron::control {
namespace {

constexpr auto kPatience = std::chrono::seconds(3);

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  Dialer(asio::io_context& io, Participant target, Identity self, std::function<void(Dialed)> done)
      : target_(std::move(target)), self_(std::move(self)), done_(std::move(done)), socket_(io), patience_(io) {}

  ~Dialer() { close_guarded(socket_); }
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  void next() {
    if (next_ == target_.addresses.size()) return done_(std::move(last_));
    const std::string& address = target_.addresses[next_++];
    where_ = endpoint_text(address, target_.port);
    Error error;
    const auto numeric = asio::ip::make_address(address, error);
    if (error) return failed(error);
    const asio::ip::tcp::endpoint endpoint(numeric, target_.port);
    socket_.open(endpoint.protocol(), error);
    if (error) return failed(error);
    guard(socket_);
    patience_.expires_after(kPatience);
    patience_.async_wait([self = shared_from_this(), attempt = next_](const Error& cancelled) {
      if (!cancelled && attempt == self->next_) close_guarded(self->socket_);
    });
    socket_.async_connect(endpoint, [self = shared_from_this()](const Error& result) {
      self->patience_.cancel();
      if (result) return self->failed(result);
      self->connected();
    });
  }

 private:
  void failed(const Error& error) {
    close_guarded(socket_);
    const bool is_late = error == asio::error::operation_aborted;
    note(error == asio::error::connection_refused ? Dialed::How::nobody_listens : Dialed::How::unreachable,
         is_late ? "no answer within 3 s" : error.message());
    next();
  }

  void connected() {
    set_liveness_options(socket_);
    auto link = std::make_shared<Link>(StreamSocket(std::move(socket_)), /*is_local=*/false);
    greet(link, self_, target_.member.rank, [self = shared_from_this(), link](const Status& status, Rank) {
      if (status) return self->done_({Dialed::How::linked, link, {}});
      self->note(Dialed::How::nobody_listens, status.message());
      self->next();
    });
  }

  /// One address at which nobody listens says more than others that lead nowhere.
  void note(Dialed::How how, const std::string& why) {
    if (how == Dialed::How::nobody_listens || last_.how != Dialed::How::nobody_listens) last_.how = how;
    last_.why += (last_.why.empty() ? "" : "; ") + where_ + ": " + why;
  }

  Participant target_;
  Identity self_;
  std::function<void(Dialed)> done_;
  asio::ip::tcp::socket socket_;
  asio::steady_timer patience_;
  std::size_t next_ = 0;
  std::string where_;
  Dialed last_;
};

}  // namespace

void dial(asio::io_context& io, const Participant& target, const Identity& self, std::function<void(Dialed)> done) {
  std::make_shared<Dialer>(io, target, self, std::move(done))->next();
}

bool says_unreachable(const Error& error) {
  return error == asio::error::timed_out || error == asio::error::host_unreachable ||
         error == asio::error::network_unreachable || error == asio::error::network_down;
}

}  // namespace neuron::control
