// Job: this process's part of one job: joined through the control plane, with its transports and its engine.
// A resource, shared by the job's groups; it leaves the job when the last lease is given back or it is destroyed.
// Any thread. Joining fails with what control::Control::join or a transport says.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c10d_neuron/control/control.h"
#include "c10d_neuron/group.h"
#include "c10d_neuron/store_adapter.h"
#include "collectives/run/engine.h"

namespace neuron {

class Job : public std::enable_shared_from_this<Job> {
 public:
  /// Joins over the store of the group that needs the job; its members become the job's.
  static Result<std::shared_ptr<Job>> join(const GroupRequest& request, const std::shared_ptr<StoreAdapter>& store,
                                           const Config& config);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] bool covers(const std::vector<std::int64_t>& global_ranks) const;
  [[nodiscard]] std::size_t world() const { return members_.size(); }
  /// Torch's global ranks; index = the job's rank.
  [[nodiscard]] const std::vector<std::int64_t>& members() const { return members_; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  /// True once it has left: no group can be made in it any more.
  [[nodiscard]] bool is_over() const { return is_over_.load(); }
  [[nodiscard]] const Engine& engine() const { return *engine_; }

  /// A group of the job. Its id comes from the group's rank 0, through the group's store.
  Result<std::shared_ptr<Group>> make_group(const GroupRequest& request, control::KeyValueStore& store);
  /// Tells the others and stops the control plane. Waits at most kFarewell for those who are about to leave too.
  /// Idempotent.
  void leave();

 private:
  class EngineListener;
  class Channel;
  static constexpr Nanoseconds kFarewell = kSecond;

  void say_farewell();

  Job(const GroupRequest& request, std::uint64_t nonce);
  Status open(const GroupRequest& request, StoreAdapter& store, const Config& config);
  [[nodiscard]] Result<std::unique_ptr<Transport>> open_fabric(const Config& config) const;

  const std::vector<std::int64_t> members_;  // torch's global ranks; index = the job's rank
  const std::uint64_t nonce_;
  const SteadyClock clock_;
  std::uint64_t generation_ = 0;
  std::atomic<bool> is_over_{false};
  std::atomic<int> leases_{0};
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> groups_made_;  // by name: a name may come again after its group was destroyed
  std::uint64_t ids_made_ = 0;
  // In the order of construction; the engine goes first.
  std::shared_ptr<Doorbell> doorbell_;
  std::unique_ptr<EngineListener> listener_;
  std::unique_ptr<control::Control> control_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Communicator> farewell_;  // all ranks of the job; used once
};

/// What a GroupRequest leaves to be filled in: the members, if it is the default group.
std::vector<std::int64_t> members_of(const GroupRequest& request);

}  // namespace neuron
