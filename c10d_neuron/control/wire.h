// Between the plain structs of the control plane and the messages of control.proto.
// Pure functions; any thread. What comes from outside is checked where it is used; nothing here fails.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "c10d_neuron/control/broadcast_log.h"
#include "c10d_neuron/control/control.pb.h"
#include "c10d_neuron/control/participant.h"

namespace neuron::control {

/// Of the control plane itself; joined ranks must agree.
inline constexpr std::uint32_t kProtocol = 1;
inline constexpr std::size_t kLargestPayload = 8 << 20;
inline constexpr std::size_t kLargestFrame = kLargestPayload + 4096;

proto::MemberRecord record_of(const Participant& participant);
Participant participant_of(const proto::MemberRecord& record);

/// The shape in parts of at most about 512 KiB, below gRPC's limit of 4 MiB.
std::vector<proto::ShapePart> parts_of(std::span<const Participant> participants);

/// Collects parts until all ranks are there.
class ShapeAssembly {
 public:
  /// True once every rank is known. Wrong ranks are ignored: the shape then never becomes complete.
  bool add(const proto::ShapePart& part);
  [[nodiscard]] std::vector<Participant> take() { return std::move(participants_); }

 private:
  std::vector<Participant> participants_;
  std::size_t known_ = 0;
};

Shape shape_of(std::uint64_t generation, std::span<const Participant> participants);

proto::Failure failure_of(const Status& status);
Status status_of(const proto::Failure& failure);

/// With its length in front.
Encoded encode(const proto::Frame& frame);

}  // namespace neuron::control
