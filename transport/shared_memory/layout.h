// Layout: where things lie in an arena. A value; owner and readers compute the same offsets from (slots, bytes).
//
//   page 0      ControlPage: who owns the arena, and whether the owner sleeps
//   consumed    one line per slot: how far the owner has read the outbox of the peer with that slot
//   generations one line per block: odd while the block is shared
//   outboxes    one ring per slot: messages from the owner to the peer with that slot
//   blocks      kBlockBytes each
//
// The kernel maps all of it lazily: an outbox or block that nobody used costs no memory.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/base/rank.h"
#include "transport/header.h"

namespace neuron::shared_memory {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kPairBytes = 2 * kLineBytes;  // the CPU prefetches lines in pairs: keeps two writers apart
inline constexpr std::size_t kRingBytes = 128 * 1024;
inline constexpr std::size_t kArenaStep = 64 * 1024 * 1024;
inline constexpr std::size_t kMaxArenaBytes = 16 * kArenaStep;
inline constexpr std::uint32_t kMaxSlots = 256;  // peers on one host
inline constexpr std::uint32_t kMinBlocks = 64;
inline constexpr std::uint64_t kArenaMagic = 0x6E6F7275656E6331;  // "1cneuron"

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free, "words are shared between processes");

/// Values of ControlPage::asleep.
inline constexpr std::uint64_t kAwake = 0;
inline constexpr std::uint64_t kAsleep = 1;         // ring when you send
inline constexpr std::uint64_t kAsleepForRoom = 2;  // ring also when you have made room in my outbox

struct ControlPage {
  std::uint64_t magic = kArenaMagic;
  std::uint32_t version = kProtocolVersion;
  Rank rank = kNoRank;
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slots = 0;
  alignas(kPairBytes) Word asleep{kAwake};
};
static_assert(sizeof(ControlPage) <= kPageBytes && offsetof(ControlPage, asleep) == kPairBytes);

struct Layout {
  std::uint32_t slots = 0;
  std::size_t bytes = 0;  // of the whole arena, a multiple of kArenaStep

  /// The smallest arena with an outbox per slot and at least kMinBlocks blocks.
  static Layout for_slots(std::uint32_t slots) {
    Layout layout{slots, kArenaStep};
    while (layout.blocks_offset() + kMinBlocks * kBlockBytes > layout.bytes) layout.bytes += kArenaStep;
    return layout;
  }

  /// Whether numbers from a peer make a layout at all; the other members are only meaningful then.
  [[nodiscard]] bool is_sane() const {
    return slots > 0 && slots <= kMaxSlots && bytes > 0 && bytes <= kMaxArenaBytes && bytes % kArenaStep == 0 &&
           blocks_offset() < bytes;
  }

  [[nodiscard]] std::uint32_t blocks() const {
    return static_cast<std::uint32_t>((bytes - blocks_offset()) / kBlockBytes);
  }
  [[nodiscard]] std::size_t consumed_offset(std::uint32_t slot) const { return kPageBytes + slot * kPairBytes; }
  [[nodiscard]] std::size_t generation_offset(std::size_t block) const {
    return consumed_offset(slots) + block * kLineBytes;
  }
  [[nodiscard]] std::size_t ring_offset(std::uint32_t slot) const {
    return round_up(generation_offset(bytes / kBlockBytes), kPageBytes) + slot * kRingBytes;
  }
  [[nodiscard]] std::size_t blocks_offset() const { return round_up(ring_offset(slots), kBlockBytes); }
  [[nodiscard]] std::size_t block_offset(std::size_t block) const { return blocks_offset() + block * kBlockBytes; }

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  static constexpr std::size_t round_up(std::size_t value, std::size_t step) {
    return (value + step - 1) / step * step;
  }
};

inline Word& word_at(std::byte* address) { return *reinterpret_cast<Word*>(address); }
inline const Word& word_at(const std::byte* address) { return *reinterpret_cast<const Word*>(address); }

/// Orders plain reads made before this call before atomic loads made after it: what a reader needs between the last
/// read of a lent block and the look at its generation. Not a bare fence: on x86-64 only the compiler has to be held
/// back.
inline void order_earlier_reads() {
#if defined(__aarch64__)
  asm volatile("dmb ishld" ::: "memory");
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace neuron::shared_memory
