#include "c10d_neuron/control/wire.h"

#include <cstring>
#include <map>

namespace neuron::control {
namespace {

constexpr std::size_t kPartBytes = 512 << 10;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

proto::ShapePart::Host host_of(const Participant& participant) {
  proto::ShapePart::Host host;
  host.set_name(participant.member.host_name);
  host.set_identity(participant.member.host_identity);
  host.set_version(participant.member.version);
  host.set_pid_namespace(participant.pid_namespace);
  for (const auto& address : participant.addresses) host.add_addresses(address);
  return host;
}

Participant participant_of(const proto::ShapePart::Host& host, const proto::ShapePart::Member& member, Rank world) {
  Participant participant;
  participant.world = world;
  participant.member.rank = member.rank();
  participant.member.nonce = member.nonce();
  participant.member.pid = member.pid();
  participant.member.host_name = host.name();
  participant.member.host_identity = host.identity();
  participant.member.version = host.version();
  participant.member.shared_memory_address = bytes_of(member.shared_memory_address());
  participant.addresses.assign(host.addresses().begin(), host.addresses().end());
  participant.port = static_cast<std::uint16_t>(member.port());
  participant.leads = member.leads();
  participant.pid_namespace = host.pid_namespace();
  return participant;
}

}  // namespace

proto::MemberRecord record_of(const Participant& participant) {
  const Member& member = participant.member;
  proto::MemberRecord record;
  record.set_rank(member.rank);
  record.set_world(participant.world);
  record.set_nonce(member.nonce);
  record.set_pid(member.pid);
  record.set_host_name(member.host_name);
  record.set_host_identity(member.host_identity);
  record.set_version(member.version);
  record.set_shared_memory_address(text_of(member.shared_memory_address));
  for (const auto& address : participant.addresses) record.add_addresses(address);
  record.set_port(participant.port);
  record.set_leads(participant.leads);
  record.set_pid_namespace(participant.pid_namespace);
  return record;
}

Participant participant_of(const proto::MemberRecord& record) {
  Participant participant;
  participant.world = record.world();
  participant.member.rank = record.rank();
  participant.member.nonce = record.nonce();
  participant.member.pid = record.pid();
  participant.member.host_name = record.host_name();
  participant.member.host_identity = record.host_identity();
  participant.member.version = record.version();
  participant.member.shared_memory_address = bytes_of(record.shared_memory_address());
  participant.addresses.assign(record.addresses().begin(), record.addresses().end());
  participant.port = static_cast<std::uint16_t>(record.port());
  participant.leads = record.leads();
  participant.pid_namespace = record.pid_namespace();
  return participant;
}

std::vector<proto::ShapePart> parts_of(std::span<const Participant> participants) {
  std::vector<proto::ShapePart> parts;
  std::map<std::string, std::uint32_t> host_index;  // by everything that is said per host
  std::size_t bytes = kPartBytes;
  for (const Participant& participant : participants) {
    if (bytes >= kPartBytes) {
      parts.emplace_back().set_world(static_cast<Rank>(participants.size()));
      host_index.clear();
      bytes = 0;
    }
    proto::ShapePart& part = parts.back();
    auto host = host_of(participant);
    const auto [entry, is_new] =
        host_index.try_emplace(host.SerializeAsString(), static_cast<std::uint32_t>(part.hosts_size()));
    if (is_new) {
      bytes += host.ByteSizeLong();
      *part.add_hosts() = std::move(host);
    }
    auto* member = part.add_members();
    member->set_host(entry->second);
    member->set_rank(participant.member.rank);
    member->set_nonce(participant.member.nonce);
    member->set_pid(participant.member.pid);
    member->set_shared_memory_address(text_of(participant.member.shared_memory_address));
    member->set_port(participant.port);
    member->set_leads(participant.leads);
    bytes += member->ByteSizeLong();
  }
  return parts;
}

bool ShapeAssembly::add(const proto::ShapePart& part) {
  if (participants_.empty() && part.world() > 0) participants_.resize(static_cast<std::size_t>(part.world()));
  for (const auto& member : part.members()) {
    const auto rank = static_cast<std::size_t>(member.rank());
    if (member.rank() < 0 || rank >= participants_.size()) continue;
    if (member.host() >= static_cast<std::uint32_t>(part.hosts_size())) continue;
    if (participants_[rank].member.rank == kNoRank) known_ += 1;
    participants_[rank] = participant_of(part.hosts(static_cast<int>(member.host())), member, part.world());
  }
  return known_ > 0 && known_ == participants_.size();
}

Shape shape_of(std::uint64_t generation, std::span<const Participant> participants) {
  Shape shape;
  shape.generation = generation;
  std::vector<std::string> hosts;
  for (const Participant& participant : participants) {
    shape.members.push_back(participant.member);
    hosts.push_back(participant.member.host_identity);
  }
  shape.topology = Topology::from_hosts(hosts);
  return shape;
}

proto::Failure failure_of(const Status& status) {
  proto::Failure failure;
  failure.set_code(static_cast<std::uint32_t>(status.code()));
  failure.set_text(status.message());
  return failure;
}

Status status_of(const proto::Failure& failure) {
  const bool is_known = failure.code() > 0 && failure.code() <= static_cast<std::uint32_t>(Code::internal);
  return {is_known ? static_cast<Code>(failure.code()) : Code::internal, failure.text()};
}

Encoded encode(const proto::Frame& frame) {
  const auto length = static_cast<std::uint32_t>(frame.ByteSizeLong());
  auto encoded = std::make_shared<std::string>(sizeof length + length, '\0');
  std::memcpy(encoded->data(), &length, sizeof length);  // little endian, as all machines that we run on
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(encoded->data() + sizeof length));
  return encoded;
}

}  // namespace neuron::control
