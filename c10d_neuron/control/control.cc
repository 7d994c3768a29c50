#include "c10d_neuron/control/control.h"

#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>

#include "c10d_neuron/control/joiner.h"
#include "c10d_neuron/control/wire.h"
#include "transport/base/log.h"

namespace neuron::control {
namespace {

constexpr auto kLeavePatience = std::chrono::seconds(1);

/// Control as join() returns it. In a forked child it does nothing and leaks what it holds: gRPC and the thread belong
/// to the process that joined.
class Node final : public Control {
 public:
  explicit Node(Joiner& joined)
      : runtime_(std::move(joined.runtime)),
        server_(std::move(joined.server)),
        mesh_(std::move(joined.mesh)),
        shape_(std::move(joined.shape)),
        token_(std::move(joined.token)) {
    if (!server_) return;
    runtime_->run([this] { server_->answer_status_with([mesh = mesh_] { return mesh->status(); }); });
  }

  ~Node() override {
    leave();
    if (is_owner()) return;
    static_cast<void>(runtime_.release());
    static_cast<void>(server_.release());
    static_cast<void>(new std::shared_ptr<Mesh>(std::move(mesh_)));
  }

  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] const std::string& token() const override { return token_; }

  void send(Rank destination, std::vector<std::byte> bytes) override {
    if (is_too_large(bytes)) return;
    post(
        [mesh = mesh_, destination, bytes = std::move(bytes)]() mutable { mesh->send(destination, std::move(bytes)); });
  }

  void broadcast(std::vector<std::byte> bytes) override {
    if (is_too_large(bytes)) return;
    post([mesh = mesh_, bytes = std::move(bytes)] { mesh->broadcast(bytes); });
  }

  void watch(Rank rank, int pidfd) override {
    if (!is_owner()) return;
    auto copy = std::make_unique<Descriptor>(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
    post([mesh = mesh_, rank, copy = std::move(copy)] { mesh->watch(rank, std::move(*copy)); });
  }

  void leave() override {
    if (!is_owner() || has_left_.exchange(true)) return;
    auto left = std::make_shared<std::promise<void>>();
    auto outcome = left->get_future();
    boost::asio::post(runtime_->io, [mesh = mesh_, left] { mesh->leave([left] { left->set_value(); }); });
    outcome.wait_for(kLeavePatience);
    if (server_) {
      server_->stop();
      runtime_->run([] {});  // what its streams posted at their end
      server_.reset();
    }
    runtime_->stop();
    mesh_.reset();
    const std::lock_guard lock(mutex_);
    runtime_.reset();
  }

 private:
  [[nodiscard]] bool is_owner() const { return ::getpid() == owner_; }

  [[nodiscard]] bool is_too_large(const std::vector<std::byte>& bytes) const {
    if (bytes.size() <= kLargestPayload || !is_owner()) return false;
    log(LogLevel::error,
        "A control message of " + std::to_string(bytes.size()) + " bytes is dropped: the limit is 8 MiB.");
    return true;
  }

  template <typename Work>
  void post(Work work) {
    if (!is_owner() || has_left_) return;
    const std::lock_guard lock(mutex_);
    if (runtime_) runtime_->mailbox->post(std::move(work));
  }

  const pid_t owner_ = ::getpid();
  std::atomic<bool> has_left_{false};
  std::mutex mutex_;  // runtime_ against a late post
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<JoinServer> server_;
  std::shared_ptr<Mesh> mesh_;
  Shape shape_;
  std::string token_;
};

/// gRPC hangs in a child of a process that has used it.
Status check_not_forked() {
  static std::atomic<pid_t> user{0};
  pid_t first = 0;
  if (user.compare_exchange_strong(first, ::getpid()) || first == ::getpid()) return {};
  return {Code::unsupported, "This process was forked from one that had already joined a job (pid " +
                                 std::to_string(first) +
                                 "), and cannot join one itself. Start it with the spawn or forkserver method."};
}

}  // namespace

Result<std::unique_ptr<Control>> Control::join(const JoinOptions& options, KeyValueStore& store, Listener& listener) {
  if (Status status = check_not_forked(); !status) return status;
  Joiner joiner(options, store, listener);
  if (Status status = joiner.run(); !status) return status;
  return std::unique_ptr<Control>(new Node(joiner));
}

}  // namespace neuron::control
