#include "c10d_neuron/control/handshake.h"

#include <boost/asio/steady_timer.hpp>

#include "c10d_neuron/control/token.h"
#include "transport/base/decode.h"
#include "transport/base/hmac.h"

namespace neuron::control {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

/// One side of one handshake. Lives as long as its link listens to it or its timer runs.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(LinkPointer link, Identity self, Rank expected, HandshakeDone done)
      : link_(std::move(link)),
        self_(std::move(self)),
        expected_(expected),
        done_(std::move(done)),
        timer_(link_->executor()) {}

  void start(bool greets) {
    link_->listen([handshake = shared_from_this()](proto::Frame& frame) { handshake->on_frame(frame); },
                  [handshake = shared_from_this()](const Error& error) {
                    handshake->end({Code::unavailable, "the connection ended: " + error.message()});
                  });
    timer_.expires_after(kPatience);
    timer_.async_wait([handshake = shared_from_this()](const Error& error) {
      if (!error) handshake->end({Code::timeout, "no answer within 5 s"});
    });
    if (greets) say_hello();
    link_->start();
  }

 private:
  void say_hello() {
    proto::Frame frame;
    auto* hello = frame.mutable_hello();
    hello->set_generation(self_.generation);
    hello->set_rank(self_.rank);
    hello->set_nonce(nonce_);
    link_->send(frame);
  }

  void on_frame(proto::Frame& frame) {
    switch (frame.body_case()) {
      case proto::Frame::kHello:
        return on_hello(frame.hello());
      case proto::Frame::kHelloAnswer:
        return on_answer(frame.hello_answer());
      case proto::Frame::kProof:
        return on_proof(frame.proof());
      default:
        return end({Code::refused, "the peer did not say who it is"});
    }
  }

  void on_hello(const proto::Hello& hello) {
    if (hello.generation() != self_.generation) return end({Code::refused, "the peer belongs to another join"});
    peer_ = hello.rank();
    peer_nonce_ = hello.nonce();
    proto::Frame frame;
    auto* answer = frame.mutable_hello_answer();
    answer->set_generation(self_.generation);
    answer->set_rank(self_.rank);
    answer->set_nonce(nonce_);
    answer->set_mac(proof(self_.token, "answers", self_.generation, nonce_, peer_nonce_, self_.rank, peer_));
    link_->send(frame);
  }

  void on_answer(const proto::HelloAnswer& answer) {
    peer_ = answer.rank();
    const bool is_expected = expected_ == kNoRank || expected_ == peer_;
    const auto right = proof(self_.token, "answers", self_.generation, answer.nonce(), nonce_, peer_, self_.rank);
    if (!is_expected || answer.generation() != self_.generation || !equal_in_constant_time(right, answer.mac())) {
      return end({Code::refused, "the peer is not who it should be, or does not know the token"});
    }
    proto::Frame frame;
    frame.mutable_proof()->set_mac(
        proof(self_.token, "greets", self_.generation, nonce_, answer.nonce(), self_.rank, peer_));
    link_->send(frame);
    end({});
  }

  void on_proof(const proto::Proof& given) {
    const auto right = proof(self_.token, "greets", self_.generation, peer_nonce_, nonce_, peer_, self_.rank);
    if (peer_nonce_.empty() || !equal_in_constant_time(right, given.mac())) {
      return end({Code::refused, "the peer does not know the token"});
    }
    end({});
  }

  void end(const Status& status) {
    if (!done_) return;
    const auto keep = shared_from_this();
    const auto done = std::exchange(done_, nullptr);
    timer_.cancel();
    if (status) {
      link_->peer = peer_;
      link_->set_authenticated();
      link_->listen(nullptr, nullptr);
    } else {
      link_->close();
    }
    done(status, peer_);
  }

  LinkPointer link_;
  Identity self_;
  Rank expected_;
  HandshakeDone done_;
  asio::steady_timer timer_;
  std::string nonce_ = make_nonce();
  std::string peer_nonce_;
  Rank peer_ = kNoRank;
};

}  // namespace

void greet(LinkPointer link, const Identity& self, Rank expected, HandshakeDone done) {
  std::make_shared<Handshake>(std::move(link), self, expected, std::move(done))->start(true);
}

void answer(LinkPointer link, const Identity& self, HandshakeDone done) {
  std::make_shared<Handshake>(std::move(link), self, kNoRank, std::move(done))->start(false);
}

std::string proof(const std::string& token, std::string_view role, std::uint64_t generation, std::string_view own_nonce,
                  std::string_view peer_nonce, Rank own_rank, Rank peer_rank) {
  Encoder encoder;
  encoder.text(role).number(generation).text(own_nonce).text(peer_nonce).number(own_rank).number(peer_rank);
  const auto bytes = encoder.take();
  return derive(token, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string make_nonce() { return make_token().substr(0, 16); }

}  // namespace neuron::control
