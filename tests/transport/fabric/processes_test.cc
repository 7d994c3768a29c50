// Two processes: on loopback, and in two network namespaces joined by a veth pair, as two hosts are.
#include <gmock/gmock.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "rail_pair.h"

namespace neuron::fabric::test {
namespace {

constexpr std::uint64_t kMessages = 3'000;
constexpr std::uint32_t kWrites = 60;
constexpr std::uint64_t kGrantTag = 1;
constexpr std::uint64_t kByeTag = 2;

/// The content that both sides derive by themselves: of write `round` to rank `target`.
std::vector<std::byte> content_of(Rank target, std::uint32_t round) {
  Random random(1'000 * static_cast<std::uint64_t>(target + 1) + round);
  return random_bytes(random, 1 + random.below(kBlockBytes));
}

/// One of the two processes. Sends checked messages, has blocks written by the other, and writes into the other's.
class Participant final : public TransportEvents {
 public:
  Participant(Rail& rail, Rank rank) : rail_(rail), rank_(rank), random_(static_cast<std::uint64_t>(rank) + 7) {}

  /// 0, or the number of the step that failed.
  int run() {
    if (!poll_until([&] { return step_messages(); }, 60 * kSecond)) return 10;
    if (rail_.traits().bulk == BulkMode::write) {
      landing_ = rail_.take_block();
      staging_ = rail_.take_block();
      if (!landing_ || !staging_) return 11;
      if (!poll_until([&] { return step_writes(); }, 60 * kSecond)) return 12;
    }
    if (!poll_until([&] { return step_bye(); })) return 13;
    if (is_wrong_) return 14;
    return 0;
  }

  void on_message(Rank source, const Header& header, std::span<const std::byte> payload) override {
    is_wrong_ |= source != 1 - rank_ || header.fingerprint != checksum(payload);
    if (header.tag == kByeTag) {
      has_bye_ = true;
    } else if (header.tag == kGrantTag) {
      std::memcpy(&target_, payload.data(), sizeof target_);
      has_target_ = true;
    } else {
      ++received_;
    }
  }
  void on_written(std::uint32_t immediate) override {
    const auto expected = content_of(rank_, immediate);
    is_wrong_ |= immediate != landed_ || std::memcmp(landing_->address, expected.data(), expected.size()) != 0;
    ++landed_;
  }
  void on_write_done(std::uint64_t, const Status& status) override {
    is_wrong_ |= !status;
    is_writing_ = false;
  }
  void on_peer_lost(Rank, const Status& why) override {
    std::fprintf(stderr, "rank %d: %s\n", rank_, why.message().c_str());
    is_wrong_ = true;
  }

 private:
  bool send(std::uint64_t tag, std::span<const std::byte> payload) {
    Header header = header_from(rank_, 0, payload.size());
    header.tag = tag;
    header.fingerprint = checksum(payload);
    return rail_.send(1 - rank_, header, payload) == Posted::done;
  }

  bool step_messages() {
    if (pending_.empty() && sent_ < kMessages) pending_ = random_bytes(random_, 1 + random_.below(kEagerBytes));
    if (sent_ < kMessages && send(0, pending_)) {
      ++sent_;
      pending_.clear();
    }
    rail_.poll(*this);
    return sent_ == kMessages && received_ == kMessages;
  }

  bool step_writes() {
    rail_.poll(*this);
    if (granted_ == landed_ && granted_ < kWrites) {
      const RemoteBlock own = rail_.expose(*landing_);
      if (send(kGrantTag, std::as_bytes(std::span(&own, 1)))) ++granted_;
    }
    if (has_target_ && !is_writing_) {
      const auto content = content_of(1 - rank_, written_);
      std::memcpy(staging_->address, content.data(), content.size());
      if (rail_.write(1 - rank_, *staging_, content.size(), target_, written_, 0) == Posted::done) {
        is_writing_ = true;
        has_target_ = false;
        ++written_;
      }
    }
    return landed_ == kWrites && written_ == kWrites && !is_writing_;
  }

  bool step_bye() {
    if (!is_bye_sent_) is_bye_sent_ = send(kByeTag, {});
    rail_.poll(*this);
    return is_bye_sent_ && has_bye_;
  }

  Rail& rail_;
  Rank rank_;
  Random random_;
  std::vector<std::byte> pending_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::optional<Block> landing_;
  std::optional<Block> staging_;
  RemoteBlock target_;
  std::uint32_t granted_ = 0;
  std::uint32_t landed_ = 0;
  std::uint32_t written_ = 0;
  bool has_target_ = false;
  bool is_writing_ = false;
  bool is_bye_sent_ = false;
  bool has_bye_ = false;
  bool is_wrong_ = false;
};

int participate(Rank rank, const Options& options, const Pipe& out, const Pipe& in) {
  const auto rail = open(options, kClock);
  if (!rail) {
    std::fprintf(stderr, "%s\n", rail.status().message().c_str());
    return 1;
  }
  out.put((*rail)->address());
  if (!(*rail)->connect(1 - rank, in.get())) return 2;
  return Participant(**rail, rank).run();
}

void run_two_processes(const Options& options) {
  const Pipe up;
  const Pipe down;
  Child first([&] { return participate(0, options, up, down); });
  Child second([&] { return participate(1, options, down, up); });
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(TwoProcesses, ExchangeMessagesAndWrites) { run_two_processes(on_loopback()); }

TEST(TwoProcesses, ExchangeMessages_WhenRemoteWritesAreOff) {
  Options options = on_loopback();
  options.remote_write = false;
  run_two_processes(options);
}

bool has_carrier(const std::string& interface) {
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = ::ioctl(socket, SIOCGIFFLAGS, &request) == 0;
  ::close(socket);
  return known && (request.ifr_flags & IFF_RUNNING) != 0;
}

/// Enters a network namespace of its own, says so, and waits until its end of the veth pair has been put there and
/// works.
bool enter_own_network(Rank rank, const Pipe& ready, const Pipe& go) {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  ready.put({});
  (void)go.get();
  const std::string end = "c10dtest" + std::to_string(rank);
  const std::string address = "198.51.100." + std::to_string(rank + 1) + "/24";
  const std::string command =
      "ip link set lo up && ip addr add " + address + " dev " + end + " && ip link set " + end + " up";
  return std::system(command.c_str()) == 0 && poll_until([&] { return has_carrier(end); });
}

TEST(TwoNetworkNamespaces, ExchangeMessagesAndWrites_OverTheInterfaceThatJoinsThem) {
  if (::geteuid() != 0 || std::system("ip -V > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "making network namespaces needs root and the command `ip`";
  }
  Options options = on_loopback();
  options.network_interface.clear();
  const Pipe up;
  const Pipe down;
  const Pipe ready;
  const Pipe go;
  const auto body = [&](Rank rank) {
    if (!enter_own_network(rank, ready, go)) return 3;
    return participate(rank, options, rank == 0 ? up : down, rank == 0 ? down : up);
  };
  Child first([&] { return body(0); });
  Child second([&] { return body(1); });
  (void)ready.get();
  (void)ready.get();
  const std::string command = "ip link add c10dtest0 netns " + std::to_string(first.pid()) +
                              " type veth peer name c10dtest1 netns " + std::to_string(second.pid());
  ASSERT_EQ(std::system(command.c_str()), 0);  // both ends go with their namespaces
  go.put({});
  go.put({});
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

}  // namespace
}  // namespace neuron::fabric::test
