// Arena and PeerArena: what a peer can and cannot do with the descriptor that it gets.
#include "transport/shared_memory/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace neuron::shared_memory {
namespace {

constexpr Rank kOwner = 3;
constexpr std::uint64_t kNonce = 77;

class ArenaTest : public ::testing::Test {
 protected:
  static Arena make() {
    auto arena = Arena::create(kOwner, kNonce, Layout::for_slots(4));
    EXPECT_TRUE(arena.is_ok()) << arena.status().message();
    return std::move(*arena);
  }
  // As a peer sees it: another descriptor of the same memory.
  static Descriptor hand_out(const Arena& arena) { return Descriptor(::fcntl(arena.descriptor(), F_DUPFD_CLOEXEC, 0)); }

  // A memfd that is not ours, with the seals of one's choice.
  static Descriptor forge(std::size_t bytes, int seals) {
    Descriptor made(::memfd_create("forged", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(made.number(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(made.number(), F_ADD_SEALS, seals), 0);
    return made;
  }
};

TEST_F(ArenaTest, ReadersCannotMapItWritable) {
  const Arena arena = make();
  const Descriptor peer = hand_out(arena);
  EXPECT_EQ(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer.number(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* const readable = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, peer.number(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(::mprotect(readable, kPageBytes, PROT_READ | PROT_WRITE), 0);
  ::munmap(readable, kPageBytes);
}

TEST_F(ArenaTest, ReadersCannotWriteOrResizeIt) {
  const Arena arena = make();
  const Descriptor peer = hand_out(arena);
  EXPECT_NE(::ftruncate(peer.number(), 0), 0);
  EXPECT_NE(::ftruncate(peer.number(), static_cast<off_t>(2 * arena.layout().bytes)), 0);
  EXPECT_NE(::pwrite(peer.number(), "x", 1, 0), 1);
  EXPECT_NE(::fcntl(peer.number(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(ArenaTest, OwnerStillWrites_AndReadersSeeIt) {
  const Arena arena = make();
  const Descriptor peer = hand_out(arena);
  const auto mapped =
      PeerArena::map(peer, arena.id() + 1, arena.layout(), kOwner, kNonce);  // not known here: a new mapping
  ASSERT_TRUE(mapped.is_ok()) << mapped.status().message();
  const std::size_t offset = arena.layout().block_offset(0);
  EXPECT_NE(arena.at(offset), mapped->at(offset));
  *arena.at(offset) = std::byte{42};
  EXPECT_EQ(*mapped->at(offset), std::byte{42});
}

TEST_F(ArenaTest, IsMappedOnce_WithinOneProcess) {
  const Arena arena = make();
  const auto mapped = PeerArena::map(hand_out(arena), arena.id(), arena.layout(), kOwner, kNonce);
  ASSERT_TRUE(mapped.is_ok()) << mapped.status().message();
  EXPECT_EQ(arena.at(0), mapped->at(0));
}

TEST_F(ArenaTest, OutlivesItsOwner_WhileAReaderInTheProcessHoldsIt) {
  auto arena = std::make_unique<Arena>(make());
  const auto mapped = PeerArena::map(hand_out(*arena), arena->id(), arena->layout(), kOwner, kNonce);
  ASSERT_TRUE(mapped.is_ok());
  arena.reset();
  EXPECT_EQ(mapped->control().rank, kOwner);
}

TEST_F(ArenaTest, IsRefused_WhenNotSealed) {
  const Layout layout = Layout::for_slots(4);
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL}) {
    const auto mapped = PeerArena::map(forge(layout.bytes, seals), 1, layout, kOwner, kNonce);
    ASSERT_FALSE(mapped.is_ok());
    EXPECT_EQ(mapped.status().code(), Code::refused);
    EXPECT_NE(mapped.status().message().find("sealed"), std::string::npos) << mapped.status().message();
  }
}

TEST_F(ArenaTest, IsRefused_WhenItIsNotAMemfd) {
  const Descriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(PeerArena::map(file, 1, Layout::for_slots(4), kOwner, kNonce).is_ok());
}

TEST_F(ArenaTest, IsRefused_WhenSmallerThanAnnounced) {
  const Layout layout = Layout::for_slots(4);
  const auto seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  const auto mapped = PeerArena::map(forge(kPageBytes, seals), 1, layout, kOwner, kNonce);
  ASSERT_FALSE(mapped.is_ok());
  EXPECT_NE(mapped.status().message().find("size"), std::string::npos);
}

TEST_F(ArenaTest, IsRefused_WhenAnotherProcessOwnsIt) {
  const Arena arena = make();
  EXPECT_FALSE(PeerArena::map(hand_out(arena), arena.id(), arena.layout(), kOwner, kNonce + 1).is_ok());
  EXPECT_FALSE(PeerArena::map(hand_out(arena), arena.id(), arena.layout(), kOwner + 1, kNonce).is_ok());
}

TEST_F(ArenaTest, IsRefused_WhenTheLayoutMakesNoSense) {
  const Arena arena = make();
  for (const Layout layout : {Layout{0, kArenaStep}, Layout{kMaxSlots + 1, kArenaStep}, Layout{4, 0}, Layout{4, 4096},
                              Layout{4, ~std::size_t{0}}, Layout{4, 1ULL << 50}}) {
    EXPECT_FALSE(PeerArena::map(hand_out(arena), arena.id(), layout, kOwner, kNonce).is_ok());
  }
}

TEST(LayoutTest, PartsDoNotOverlap_AndFit) {
  for (std::uint32_t slots = 1; slots <= kMaxSlots; ++slots) {
    const Layout layout = Layout::for_slots(slots);
    ASSERT_TRUE(layout.is_sane());
    ASSERT_GE(layout.consumed_offset(0), sizeof(ControlPage));
    ASSERT_GE(layout.generation_offset(0), layout.consumed_offset(slots - 1) + kLineBytes);
    ASSERT_GE(layout.ring_offset(0), layout.generation_offset(layout.blocks() - 1) + kLineBytes);
    ASSERT_GE(layout.blocks_offset(), layout.ring_offset(slots - 1) + kRingBytes);
    ASSERT_GE(layout.blocks(), kMinBlocks);
    ASSERT_LE(layout.block_offset(layout.blocks() - 1) + kBlockBytes, layout.bytes);
  }
}

}  // namespace
}  // namespace neuron::shared_memory
