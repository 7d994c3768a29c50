// Runtime: Control's thread and the io_context it runs, with all signals blocked, so that they reach the program's
// threads. A resource, leaked by a forked child, in which the thread does not exist.
// Mailbox: how gRPC's threads hand work to Control's; shared by both, since a call of gRPC may end after the Runtime.
#pragma once
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace neuron::control {

class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

  /// False when Control's thread has ended; then `work` is dropped. Any thread.
  template <typename Work>
  bool post(Work work) {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return false;
    boost::asio::post(*io_, std::move(work));
    return true;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

class Runtime {
 public:
  Runtime();
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  boost::asio::io_context io{1};
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>(io);

  /// Runs `work` on Control's thread and waits for its result. Not on Control's thread itself.
  template <typename Work>
  auto run(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    boost::asio::post(io, std::move(task));
    return result.get();
  }

  /// Ends the thread. What lives on it may be destroyed afterwards, before the Runtime.
  void stop();

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::promise<void> ended_;
  std::thread thread_;
};

}  // namespace neuron::control
