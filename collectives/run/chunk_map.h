// ChunkMap: where the chunks of one space of a schedule lie in memory, and ChunkMap::lane, the part of a chunk that one
// lane moves. A value that does not own the memory.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/run/request.h"
#include "transport/base/buffer.h"

namespace neuron {

class ChunkMap {
 public:
  ChunkMap() = default;
  /// `buffers.pieces`, or `buffers.whole` cut into chunks of `stride` bytes, the last ones shorter or empty.
  ChunkMap(const Buffers& buffers, std::size_t stride)
      : pieces_(buffers.pieces), whole_(buffers.whole), stride_(stride) {}

  [[nodiscard]] Buffer at(std::uint32_t chunk) const {
    if (!pieces_.empty()) return pieces_[chunk];
    const std::size_t begin = std::min(chunk * stride_, whole_.bytes);
    return whole_.slice(begin, std::min(stride_, whole_.bytes - begin));
  }
  [[nodiscard]] std::size_t largest() const {
    if (pieces_.empty()) return std::min(stride_, whole_.bytes);
    std::size_t bytes = 0;
    for (const Buffer& piece : pieces_) bytes = std::max(bytes, piece.bytes);
    return bytes;
  }
  /// The bytes [lane * segment, (lane + 1) * segment) of a chunk, as far as it has them.
  static Buffer lane(const Buffer& chunk, std::uint32_t lane, std::size_t segment) {
    const std::size_t begin = std::min(lane * segment, chunk.bytes);
    return chunk.slice(begin, std::min(segment, chunk.bytes - begin));
  }

 private:
  std::span<const Buffer> pieces_;
  Buffer whole_;
  std::size_t stride_ = 0;
};

}  // namespace neuron
