// A rank as a process of its own, told what to do through a pipe: for tests in which ranks are killed, stopped or
// forked, or live in another network namespace. The process is this test program again, with a filter for
// RankProcess.DISABLED_Body.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace neuron::control {

/// Times that processes of one machine can compare.
double monotonic_seconds();

/// A directory with the files of a store, removed at the end.
class StoreFolder {
 public:
  StoreFolder();
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Event {
  std::string what;  // joined, failed, death, leave, message, forked, left
  int rank = -1;
  double at = 0;
  std::string text;
};

class RankProcess {
 public:
  /// `prefix`: words to start it with, such as nsenter.
  RankProcess(int rank, int world, const std::string& host, const StoreFolder& store,
              const std::vector<std::string>& prefix = {});
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void tell(const std::string& command);
  /// Waits for the next event that fits; those before it are kept and may be asked for later.
  bool hears(const std::string& what, int rank, Event& event, std::chrono::milliseconds patience);
  bool hears(const std::string& what, int rank = -1, std::chrono::milliseconds patience = std::chrono::seconds(20));
  [[nodiscard]] int count(const std::string& what);
  void signal(int number) const;
  /// SIGKILL, and waits for its end.
  void kill();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  bool read_more(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  int commands_ = -1;
  int events_ = -1;
  std::string unread_;
  std::vector<Event> heard_;
};

}  // namespace neuron::control
