// RingWriter and RingReader: the two ends of one outbox, a ring of records in the sender's arena.
//
//   record:  [u64 stamp | u32 bytes | u32 unused][Header, 64 bytes][payload]   aligned to 64 bytes
//
// The reader looks at one word: the stamp at its cursor. It is salt + position of exactly that record once the record
// is whole, and never before: a writer clears the stamp that follows before it publishes a record, so neither old
// payload nor an older record can look like the next one; the salt is the connection's own. A record never wraps: the
// writer fills the end of the ring with a skip record.
//
// Resources that own nothing; one thread at each end. What a peer's memory says is never believed: a record or a
// position that cannot be is `corrupted`, and the caller gives the peer up.
#pragma once
#include <cstring>
#include <span>

#include "transport/header.h"
#include "transport/shared_memory/layout.h"

namespace neuron::shared_memory {

inline constexpr std::size_t kRecordHeadBytes = 16;
inline constexpr std::uint32_t kSkip = 0xFFFFFFFF;

constexpr std::size_t record_bytes(std::size_t payload) {
  return (kRecordHeadBytes + sizeof(Header) + payload + kLineBytes - 1) / kLineBytes * kLineBytes;
}
inline constexpr std::size_t kMaxRecordBytes = record_bytes(kEagerBytes);
/// Room that any record can be written into, wherever the end of the ring is.
inline constexpr std::size_t kAmpleRoom = 2 * kMaxRecordBytes + kLineBytes;
/// The reader tells the writer how far it is in steps of this only, so a ring that is read to its end has ample room.
inline constexpr std::size_t kConsumedStep = kRingBytes / 4;
static_assert(kAmpleRoom <= kRingBytes - kConsumedStep);
/// Messages of the largest size that an outbox takes before anything is read.
inline constexpr std::size_t kMessagesPerRing = (kRingBytes - kConsumedStep - kAmpleRoom) / kMaxRecordBytes;

class RingWriter {
 public:
  enum class Outcome : std::uint8_t { done, full, corrupted };

  /// `ring` lies in our arena, `consumed` in the peer's.
  RingWriter(std::byte* ring, std::uint64_t salt, const Word& consumed)
      : ring_(ring), salt_(salt), consumed_(&consumed) {}

  /// Copies one message into the ring and publishes it (seq_cst, so that a look at the peer's asleep word may follow).
  Outcome write(const Header& header, std::span<const std::byte> payload) {
    const std::size_t size = record_bytes(payload.size());
    const std::size_t offset = tail_ % kRingBytes;
    const std::size_t skip = kRingBytes - offset < size ? kRingBytes - offset : 0;
    if (!has_room(skip + size)) {
      const Outcome outcome = look_for_room(skip + size);
      if (outcome != Outcome::done) return outcome;
    }
    const std::uint64_t position = tail_ + skip;
    word_at(at(position + size)).store(0, std::memory_order_relaxed);
    fill(at(position), header, payload);
    if (skip == 0) {
      publish(position, std::memory_order_seq_cst);
    } else {  // the skip record leads the reader to a record that is already there
      publish(position, std::memory_order_release);
      std::memcpy(at(tail_) + sizeof(Word), &kSkip, sizeof kSkip);
      publish(tail_, std::memory_order_seq_cst);
    }
    tail_ = position + size;
    wants_room_ = false;
    return Outcome::done;
  }

  /// Whether the last write found the ring full.
  [[nodiscard]] bool wants_room() const { return wants_room_; }

  /// Between announcing sleep and sleeping: whether the full ring has been read meanwhile. True once per full ring, so
  /// that a message which was given up does not keep the engine awake.
  bool has_found_room() {
    if (!wants_room_ || look_for_room(kAmpleRoom - kLineBytes) == Outcome::full) return false;
    wants_room_ = false;
    return true;
  }

 private:
  [[nodiscard]] std::byte* at(std::uint64_t position) const { return ring_ + position % kRingBytes; }

  void publish(std::uint64_t position, std::memory_order order) {
    word_at(at(position)).store(salt_ + position, order);
  }

  // One line more than the record: the stamp that follows is cleared, and must not be one that is still to be read.
  [[nodiscard]] bool has_room(std::size_t size) const {
    return tail_ + size + kLineBytes - known_consumed_ <= kRingBytes;
  }

  static void fill(std::byte* record, const Header& header, std::span<const std::byte> payload) {
    const auto bytes = static_cast<std::uint32_t>(payload.size());
    std::memcpy(record + sizeof(Word), &bytes, sizeof bytes);
    std::memcpy(record + kRecordHeadBytes, &header, sizeof header);
    if (!payload.empty()) std::memcpy(record + kRecordHeadBytes + sizeof header, payload.data(), payload.size());
  }

  // The peer's line is looked at only here, when the ring seems full.
  Outcome look_for_room(std::size_t size) {
    const std::uint64_t consumed = consumed_->load(std::memory_order_seq_cst);
    if (consumed > tail_ || consumed < known_consumed_) return Outcome::corrupted;
    known_consumed_ = consumed;
    if (has_room(size)) return Outcome::done;
    wants_room_ = true;
    return Outcome::full;
  }

  std::byte* ring_;
  std::uint64_t salt_;
  const Word* consumed_;
  std::uint64_t tail_ = 0;            // bytes written since the connection began
  std::uint64_t known_consumed_ = 0;  // what we last saw of the reader's position
  bool wants_room_ = false;
};

class RingReader {
 public:
  enum class Outcome : std::uint8_t { none, message, corrupted };

  /// `ring` lies in the peer's arena, `consumed` in ours.
  RingReader(const std::byte* ring, std::uint64_t salt, Word& consumed)
      : ring_(ring), salt_(salt), consumed_(&consumed) {}

  /// Whether read() has something to do. seq_cst: the sleeper's second look.
  [[nodiscard]] bool has_record() const {
    return word_at(at(cursor_)).load(std::memory_order_seq_cst) == salt_ + cursor_;
  }

  /// The message at the cursor, if there is one. `payload` stays in the ring until advance().
  Outcome read(Header& header, std::span<const std::byte>& payload) {
    if (!is_published()) return Outcome::none;
    std::uint32_t bytes = claimed_bytes();
    if (bytes == kSkip) {
      const std::size_t offset = cursor_ % kRingBytes;
      if (offset == 0) return Outcome::corrupted;  // nobody skips a whole ring
      cursor_ += kRingBytes - offset;
      if (!is_published()) return Outcome::corrupted;
      bytes = claimed_bytes();
    }
    if (bytes > kEagerBytes || cursor_ % kRingBytes + record_bytes(bytes) > kRingBytes) return Outcome::corrupted;
    std::memcpy(&header, at(cursor_) + kRecordHeadBytes, sizeof header);
    payload = {at(cursor_) + kRecordHeadBytes + sizeof header, bytes};
    size_ = record_bytes(bytes);
    return Outcome::message;
  }

  /// Gives the record that read() returned back to the writer. True when the writer has been told how far we are: then
  /// it may be asleep for want of room.
  bool advance() {
    cursor_ += size_;
    if (cursor_ - told_ < kConsumedStep) return false;
    told_ = cursor_;
    consumed_->store(cursor_, std::memory_order_seq_cst);
    return true;
  }

 private:
  [[nodiscard]] const std::byte* at(std::uint64_t position) const { return ring_ + position % kRingBytes; }

  [[nodiscard]] bool is_published() const {
    return word_at(at(cursor_)).load(std::memory_order_acquire) == salt_ + cursor_;
  }

  // Read once: a peer that changes it afterwards changes nothing.
  [[nodiscard]] std::uint32_t claimed_bytes() const {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, at(cursor_) + sizeof(Word), sizeof bytes);
    asm volatile("" : "+r"(bytes));  // keeps the compiler from reading it a second time
    return bytes;
  }

  const std::byte* ring_;
  std::uint64_t salt_;
  Word* consumed_;
  std::uint64_t cursor_ = 0;
  std::uint64_t told_ = 0;  // the position that the writer knows
  std::size_t size_ = 0;    // of the record that read() returned
};

}  // namespace neuron::shared_memory
