// The hand-over: who is let in, who is not, and that neither strangers nor stalled processes hold anybody up.
#include "transport/shared_memory/handover.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tests/transport/shared_memory/node.h"
#include "transport/shared_memory/unix_socket.h"

namespace neuron::shared_memory {
namespace {

Options quick(Rank rank) {
  Options options;
  options.rank = rank;
  options.nonce = random_nonce();
  options.token = kToken;
  options.handover_timeout = 100 * kMillisecond;
  return options;
}

bool is_told_of_loss(Node& node) {
  return eventually([&] { return node.poll(), !node.events.lost.empty(); });
}

// Waits for one packet; empty when the other end has closed.
std::vector<std::byte> receive(const Descriptor& socket) {
  pollfd watched{socket.number(), POLLIN, 0};
  ::poll(&watched, 1, static_cast<int>(kPatience / kMillisecond));
  auto packet = receive_packet(socket, true);
  return packet.is_ok() ? packet->bytes : std::vector<std::byte>{};
}

Descriptor visit(Node& node) {
  auto socket = connect_abstract(decode_address(node.endpoint->address())->socket_name);
  EXPECT_TRUE(socket.is_ok());
  return std::move(*socket);
}

TEST(Handover, ConnectsBothSides_WhenOneAsks) {
  Node a(0);
  Node b(1);
  EXPECT_TRUE(connect(a, 0, b, 1));
  EXPECT_TRUE(a.events.lost.empty());
  EXPECT_TRUE(b.events.lost.empty());
}

TEST(Handover, ConnectsOnce_WhenBothAskAtTheSameTime) {
  for (int round = 0; round < 50; ++round) {
    Node a(0);
    Node b(1);
    ASSERT_TRUE(a.endpoint->connect(1, b.endpoint->address()).is_ok());
    ASSERT_TRUE(connect(b, 1, a, 0));
    ASSERT_TRUE(a.endpoint->connect(1, b.endpoint->address()).is_ok());
    for (std::uint64_t i = 0; i < 5; ++i) {
      Header header;
      header.sequence = i;
      ASSERT_EQ(a.endpoint->send(1, header, bytes_of("x")), Posted::done);
      ASSERT_EQ(b.endpoint->send(0, header, bytes_of("x")), Posted::done);
    }
    ASSERT_TRUE(eventually([&] {
      a.poll();
      b.poll();
      return a.events.messages.size() == 5 && b.events.messages.size() == 5;
    }));
    EXPECT_TRUE(a.events.lost.empty());
    EXPECT_TRUE(b.events.lost.empty());
  }
}

TEST(Handover, ConnectsEveryPair_WhenAllAskAll) {
  constexpr Rank kRanks = 8;
  std::vector<std::unique_ptr<Node>> nodes;
  for (Rank rank = 0; rank < kRanks; ++rank) nodes.push_back(std::make_unique<Node>(rank, kToken, kRanks));
  for (Rank from = 0; from < kRanks; ++from) {
    for (Rank to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(nodes[from]->endpoint->connect(to, nodes[to]->endpoint->address()).is_ok());
    }
  }
  EXPECT_TRUE(eventually([&] {
    int pairs = 0;
    for (auto& node : nodes) {
      node->poll();
      for (Rank to = 0; to < kRanks; ++to) pairs += node->endpoint->is_connected(to) ? 1 : 0;
    }
    return pairs == kRanks * (kRanks - 1);
  }));
}

TEST(Handover, RefusesAStrangerWithoutTheToken) {
  Node inside(0);
  Node stranger(1, "another token");
  ASSERT_TRUE(stranger.endpoint->connect(0, inside.endpoint->address()).is_ok());
  ASSERT_TRUE(is_told_of_loss(stranger));
  EXPECT_EQ(stranger.events.lost[0].first, 0);
  EXPECT_EQ(stranger.events.lost[0].second.code(), Code::refused);
  EXPECT_NE(stranger.events.lost[0].second.message().find("token"), std::string::npos);
  inside.poll();
  EXPECT_FALSE(inside.endpoint->is_connected(1));
  EXPECT_TRUE(inside.events.lost.empty());
}

TEST(Handover, GivesNothingToAListenerWithoutTheToken) {
  const std::string name = "c10d-neuron-test-" + std::to_string(random_nonce());
  const auto listener = listen_abstract(name);
  ASSERT_TRUE(listener.is_ok());
  Node node(0);
  ASSERT_TRUE(node.endpoint->connect(1, encode(Address{{1, 5}, name})).is_ok());
  Descriptor socket;
  ASSERT_TRUE(eventually([&] { return (socket = std::move(*accept_connection(*listener))).is_valid(); }));
  const auto opening = receive(socket);
  ASSERT_TRUE(decode(opening).is_ok());
  const std::string said(reinterpret_cast<const char*>(opening.data()), opening.size());
  EXPECT_EQ(said.find(kToken), std::string::npos);
  ASSERT_TRUE(send_packet(socket, encode(Greeting(Reply{draw_challenge(), draw_challenge()}))).is_ok());
  const auto answer = decode(receive(socket));
  ASSERT_TRUE(answer.is_ok());
  EXPECT_TRUE(std::holds_alternative<Refusal>(*answer));
  ASSERT_TRUE(is_told_of_loss(node));
  EXPECT_EQ(node.events.lost[0].second.code(), Code::refused);
}

TEST(Handover, RefusesAForgedProof) {
  Node node(0);
  const Descriptor socket = visit(node);
  const auto owner = decode_address(node.endpoint->address())->owner;
  ASSERT_TRUE(send_packet(socket, encode(Greeting(Opening{{1, 5}, owner, draw_challenge()}))).is_ok());
  ASSERT_TRUE(std::holds_alternative<Reply>(*decode(receive(socket))));
  ASSERT_TRUE(send_packet(socket, encode(Greeting(Introduction{}))).is_ok());
  const auto answer = decode(receive(socket));
  ASSERT_TRUE(answer.is_ok());
  EXPECT_TRUE(std::holds_alternative<Refusal>(*answer));
  node.poll();
  EXPECT_FALSE(node.endpoint->is_connected(1));
}

TEST(Handover, ClosesOnWhatIsNotOurs_AndServesOnAfterwards) {
  Node a(0);
  Node b(1);
  for (const std::string& noise :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(1, '\0'), std::string(1500, 'x')}) {
    const Descriptor socket = visit(a);
    ASSERT_TRUE(send_packet(socket, std::as_bytes(std::span(noise))).is_ok());
    const auto answer = receive(socket);
    EXPECT_TRUE(answer.empty() || std::holds_alternative<Refusal>(*decode(answer)));
  }
  EXPECT_TRUE(connect(b, 1, a, 0));
}

TEST(Handover, IsNotHeldUpByManyWhoSayNothing) {
  Node a(0);
  Node b(1);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(visit(a));
  EXPECT_TRUE(connect(b, 1, a, 0));
}

TEST(Handover, TimesOut_WhenTheListenerDoesNotAnswer) {
  const std::string name = "c10d-neuron-test-" + std::to_string(random_nonce());
  const auto listener = listen_abstract(name);
  ASSERT_TRUE(listener.is_ok());
  Node node(quick(0));
  ASSERT_TRUE(node.endpoint->connect(1, encode(Address{{1, 5}, name})).is_ok());
  ASSERT_TRUE(is_told_of_loss(node));
  EXPECT_EQ(node.events.lost[0].second.code(), Code::timeout);
}

TEST(Handover, IsRefused_WhenNobodyListens) {
  Node node(0);
  ASSERT_TRUE(node.endpoint->connect(1, encode(Address{{1, 5}, "c10d-neuron-nobody"})).is_ok());
  ASSERT_TRUE(is_told_of_loss(node));
  EXPECT_EQ(node.events.lost[0].first, 1);
  EXPECT_EQ(node.events.lost[0].second.code(), Code::refused);
  EXPECT_EQ(node.endpoint->send(1, Header{}, {}), Posted::lost);
}

TEST(Handover, RefusesAnAddressOfAFormerProcess) {
  Node a(0);
  Node b(1);
  auto stale = *decode_address(b.endpoint->address());
  ++stale.owner.nonce;
  ASSERT_TRUE(a.endpoint->connect(1, encode(stale)).is_ok());
  ASSERT_TRUE(is_told_of_loss(a));
  EXPECT_NE(a.events.lost[0].second.message().find("another process"), std::string::npos);
}

TEST(Handover, RefusesASecondProcessWithARankThatIsConnected) {
  Node a(0);
  Node b(1);
  Node impostor(1);
  ASSERT_TRUE(connect(b, 1, a, 0));
  ASSERT_TRUE(impostor.endpoint->connect(0, a.endpoint->address()).is_ok());
  ASSERT_TRUE(is_told_of_loss(impostor));
  a.endpoint->disconnect(1);
  EXPECT_TRUE(impostor.endpoint->connect(0, a.endpoint->address()).is_ok());
  EXPECT_TRUE(eventually([&] {
    a.poll();
    impostor.poll();
    return a.endpoint->is_connected(1) && impostor.endpoint->is_connected(0);
  }));
}

TEST(Handover, LetsASuccessorIn_WhileATalkWithItsForerunnerIsOpen) {
  Node a(0);
  const auto owner = decode_address(a.endpoint->address())->owner;
  const std::string name = "c10d-neuron-test-" + std::to_string(random_nonce());
  const auto listener = listen_abstract(name);
  ASSERT_TRUE(a.endpoint->connect(1, encode(Address{{1, 5}, name})).is_ok());
  Descriptor forerunner;  // knows the token, gets an outbox, and says no more
  ASSERT_TRUE(eventually([&] { return (forerunner = std::move(*accept_connection(*listener))).is_valid(); }));
  const auto opening = std::get<Opening>(*decode(receive(forerunner)));
  const Reply reply{draw_challenge(), {}};
  const Claim claim{"listener", owner, {1, 5}, opening.challenge, reply.challenge};
  ASSERT_TRUE(send_packet(forerunner, encode(Greeting(Reply{reply.challenge, prove(kToken, claim)}))).is_ok());
  ASSERT_TRUE(std::holds_alternative<Introduction>(*decode(receive(forerunner))));
  a.endpoint->disconnect(1);
  Node successor(1);
  EXPECT_TRUE(connect(successor, 1, a, 0));
}

TEST(Handover, RefusesMorePeersThanItHasOutboxes) {
  Node hub(0, kToken, 2);
  Node first(1);
  Node second(2);
  ASSERT_TRUE(connect(first, 1, hub, 0));
  ASSERT_TRUE(second.endpoint->connect(0, hub.endpoint->address()).is_ok());
  ASSERT_TRUE(is_told_of_loss(second));
  EXPECT_NE(second.events.lost[0].second.message().find("outboxes"), std::string::npos);
}

TEST(Handover, IsInvalid_WhenTheAddressIsAnother) {
  Node a(0);
  Node b(1);
  EXPECT_EQ(a.endpoint->connect(2, b.endpoint->address()).code(), Code::invalid_argument);
  EXPECT_EQ(a.endpoint->connect(0, a.endpoint->address()).code(), Code::invalid_argument);
  EXPECT_EQ(a.endpoint->connect(1, bytes_of("nonsense")).code(), Code::invalid_argument);
}

TEST(Handover, ForgetsAFailure_WhenAskedAgain) {
  Node a(0);
  ASSERT_TRUE(a.endpoint->connect(1, encode(Address{{1, 5}, "c10d-neuron-nobody"})).is_ok());
  ASSERT_TRUE(is_told_of_loss(a));
  Node b(1);
  EXPECT_TRUE(connect(a, 0, b, 1));
}

TEST(Handover, HandsOverADescriptorOfTheProcess) {
  Options options = quick(0);
  std::vector<std::pair<Rank, int>> heard;
  options.on_pidfd = [&](Rank peer, int pidfd) { heard.emplace_back(peer, pidfd); };
  options.handover_timeout = 2 * kSecond;
  Node a(options);
  Node b(1);
  ASSERT_TRUE(connect(a, 0, b, 1));
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].first, 1);
  const Descriptor pidfd(heard[0].second);
  EXPECT_TRUE(pidfd.is_valid());
}

}  // namespace
}  // namespace neuron::shared_memory
