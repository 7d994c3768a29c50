// Endpoints in processes of their own: two mappings of one arena, death, and what a fork leaves behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/transport/shared_memory/node.h"
#include "tests/transport/shared_memory/processes.h"
#include "transport/base/fork_guard.h"

namespace neuron::shared_memory {
namespace {

Header numbered(std::uint64_t sequence) {
  Header header;
  header.kind = MessageKind::eager;
  header.sequence = sequence;
  return header;
}

std::size_t open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// The child's side of most tests: rank 1 meets rank 0 and sends back what it gets until an empty message comes.
bool echo(const Channel& to_child, const Channel& to_parent) {
  Node node(1);
  to_parent.put(node.endpoint->address());
  if (!node.endpoint->connect(0, to_child.get()).is_ok()) return false;
  bool is_over = false;
  node.events.on_each = [&](Rank source, const Header& header, std::span<const std::byte> payload) {
    while (node.endpoint->send(source, header, payload) == Posted::again) {
    }
    is_over = payload.empty();
  };
  return eventually([&] { return node.poll(), is_over; });
}

// The parent's side: its node is made after the fork, so that the child inherits nothing.
std::unique_ptr<Node> meet(const Channel& to_child, const Channel& to_parent,
                           std::function<void(Rank, int)> on_pidfd = {}) {
  Options options;
  options.rank = 0;
  options.nonce = random_nonce();
  options.token = kToken;
  options.on_pidfd = std::move(on_pidfd);
  auto node = std::make_unique<Node>(std::move(options));
  to_child.put(node->endpoint->address());
  EXPECT_TRUE(node->endpoint->connect(1, to_parent.get()).is_ok());
  EXPECT_TRUE(eventually([&] { return node->poll(), node->endpoint->is_connected(1); }));
  return node;
}

TEST(Processes, EchoEveryByte) {
  Channel to_child;
  Channel to_parent;
  Child child([&] { return echo(to_child, to_parent); });
  const auto node = meet(to_child, to_parent);
  std::uint64_t heard = 0;
  std::uint64_t wrong = 0;
  node->events.on_each = [&](Rank, const Header& header, std::span<const std::byte> payload) {
    if (header.sequence != heard || !is_filled_with(payload, heard)) ++wrong;
    ++heard;
  };
  constexpr std::uint64_t kMessages = 5'000;
  Random random(1);
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    std::vector<std::byte> payload(1 + random.below(i % 8 == 0 ? kEagerBytes : 200));
    fill_with(payload, i);
    ASSERT_TRUE(eventually([&] {
      const Posted posted = node->endpoint->send(1, numbered(i), payload);
      node->poll();
      return posted == Posted::done;
    }));
  }
  ASSERT_EQ(node->endpoint->send(1, numbered(kMessages), {}), Posted::done);
  EXPECT_TRUE(eventually([&] { return node->poll(), heard == kMessages + 1; }));
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(child.succeeded());
}

TEST(Processes, ReadBlocksOfEachOther) {
  Channel to_child;
  Channel to_parent;
  Child child([&] {
    Node node(1);
    to_parent.put(node.endpoint->address());
    if (!node.endpoint->connect(0, to_child.get()).is_ok()) return false;
    bool is_right = false;
    node.events.on_each = [&](Rank source, const Header&, std::span<const std::byte> payload) {
      SharedBlock block;
      std::memcpy(&block, payload.data(), sizeof block);
      const std::byte* const seen = node.endpoint->view(source, block, kBlockBytes);
      is_right = seen != nullptr && is_filled_with({seen, kBlockBytes}, 11) && node.endpoint->is_current(source, block);
      node.endpoint->send(source, Header{}, {});
    };
    return eventually([&] { return node.poll(), is_right; });
  });
  const auto node = meet(to_child, to_parent);
  const auto block = node->endpoint->take_block();
  fill_with({block->address, kBlockBytes}, 11);
  const SharedBlock shared = node->endpoint->share(*block);
  ASSERT_EQ(node->endpoint->send(1, numbered(1), std::as_bytes(std::span(&shared, 1))), Posted::done);
  EXPECT_TRUE(eventually([&] { return node->poll(), !node->events.messages.empty(); }));
  EXPECT_TRUE(child.succeeded());
}

TEST(Processes, TellOfADeath_AndGoOn) {
  Channel to_child;
  Channel to_parent;
  Child child([&] { return echo(to_child, to_parent); });
  int pidfd = -1;
  const auto node = meet(to_child, to_parent, [&](Rank, int descriptor) { pidfd = descriptor; });
  const Descriptor watched(pidfd);
  ASSERT_TRUE(watched.is_valid());
  child.kill();
  pollfd death{pidfd, POLLIN, 0};
  EXPECT_EQ(::poll(&death, 1, static_cast<int>(kPatience / kMillisecond)), 1);
  const std::vector<std::byte> payload(kEagerBytes);
  while (node->endpoint->send(1, numbered(1), payload) == Posted::done) {
  }
  node->poll();
  node->endpoint->disconnect(1);
  EXPECT_FALSE(node->endpoint->is_connected(1));
  EXPECT_EQ(node->endpoint->send(1, numbered(1), {}), Posted::lost);
  Node other(1);
  EXPECT_TRUE(connect(other, 1, *node, 0)) << "the rank's successor gets the same outbox";
}

TEST(Processes, ReadWhatADeadPeerHadSent) {
  Channel to_child;
  Channel to_parent;
  Child child([&] {
    Node node(1);
    to_parent.put(node.endpoint->address());
    if (!node.endpoint->connect(0, to_child.get()).is_ok()) return false;
    return eventually([&] { return node.poll(), node.endpoint->is_connected(0); }) &&
           node.endpoint->send(0, numbered(5), bytes_of("last words")) == Posted::done;
  });
  const auto node = meet(to_child, to_parent);
  EXPECT_TRUE(child.succeeded());
  EXPECT_TRUE(eventually([&] { return node->poll(), !node->events.messages.empty(); }));
}

TEST(Processes, TimeOut_WhenThePeerIsStopped) {
  Channel to_child;
  Channel to_parent;
  Child child([&] {
    Node node(1);
    to_parent.put(node.endpoint->address());
    return eventually([] { return false; });
  });
  Options options;
  options.rank = 0;
  options.nonce = 5;
  options.token = kToken;
  options.handover_timeout = 100 * kMillisecond;
  Node node(options);
  const auto address = to_parent.get();
  child.stop();
  ASSERT_TRUE(node.endpoint->connect(1, address).is_ok());
  ASSERT_TRUE(eventually([&] { return node.poll(), !node.events.lost.empty(); }));
  EXPECT_EQ(node.events.lost[0].second.code(), Code::timeout);
}

// No descriptor gets this number or a higher one any more; all lower ones are taken.
void close_the_table() {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
  ::setrlimit(RLIMIT_NOFILE, &none);
}

// In a child, because there is no way back from a full table of descriptors.
TEST(Processes, SayWhatIsMissing_WhenThereIsNoRoomForAnArena) {
  Child child([] {
    const Doorbell doorbell;
    close_the_table();
    const auto made = Endpoint::create({.rank = 0, .nonce = 1, .token = kToken}, doorbell);
    return !made.is_ok() && made.status().code() == Code::unavailable &&
           made.status().message().find("memfd_create: Too many open files") != std::string::npos;
  });
  EXPECT_TRUE(child.succeeded());
}

TEST(Processes, LetNobodyInButDoNotSpin_WhenDescriptorsRunOut) {
  Channel to_parent;
  Child child([&] {
    Node node(1);
    close_the_table();
    to_parent.put(node.endpoint->address());
    // Until the parent has had its answer; then the processor time of the hand-over thread is what tells.
    pollfd nobody{-1, 0, 0};
    ::poll(&nobody, 1, 300);
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 150'000;
  });
  Options options;
  options.rank = 0;
  options.nonce = 5;
  options.token = kToken;
  options.handover_timeout = 100 * kMillisecond;
  Node node(options);
  ASSERT_TRUE(node.endpoint->connect(1, to_parent.get()).is_ok());
  ASSERT_TRUE(eventually([&] { return node.poll(), !node.events.lost.empty(); }));
  EXPECT_TRUE(child.succeeded());
}

TEST(Processes, InheritNeitherDescriptorsNorMemory_WhenForked) {
  const std::size_t before = open_descriptors();
  Node a(0);
  Node b(1);
  ASSERT_TRUE(connect(a, 0, b, 1));
  const auto block = a.endpoint->take_block();
  ASSERT_GT(open_descriptors(), before);
  Child child([&] {
    unsigned char resident = 0;
    const bool is_unmapped = ::mincore(block->address, kPageBytes, &resident) != 0 && errno == ENOMEM;
    return forked_child() && open_descriptors() == before && is_unmapped;
  });
  EXPECT_TRUE(child.succeeded());
  ASSERT_EQ(a.endpoint->send(1, numbered(1), {}), Posted::done);
  EXPECT_TRUE(eventually([&] { return b.poll(), !b.events.messages.empty(); }));
}

TEST(Processes, DestroyInheritedEndpointsWithoutHarm) {
  auto a = std::make_unique<Node>(0);
  Node b(1);
  ASSERT_TRUE(connect(*a, 0, b, 1));
  Child child([&] {
    const int unrelated = ::open("/dev/null", O_RDONLY);  // takes a number that was ours in the parent
    a.reset();
    return ::fcntl(unrelated, F_GETFD) >= 0;
  });
  EXPECT_TRUE(child.succeeded());
}

}  // namespace
}  // namespace neuron::shared_memory
