#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "c10d_neuron/control/control.h"
#include "topology/host_facts.h"

namespace neuron::control {
namespace {

constexpr const char* kVariable = "NEURON_CONTROL_TEST_RANK";  // "rank world host store"

class FolderStore final : public KeyValueStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  Status set(const std::string& key, const std::string& value) override {
    const std::string path = path_of(key);
    std::ofstream(path + ".new", std::ios::binary) << value;
    std::filesystem::rename(path + ".new", path);
    return {};
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    do {
      if (std::ifstream file(path_of(key), std::ios::binary); file) {
        return std::string(std::istreambuf_iterator<char>(file), {});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } while (std::chrono::steady_clock::now() < deadline);
    return Status(Code::timeout, "no key " + key);
  }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const {
    return folder_ + "/" + std::to_string(std::hash<std::string>{}(key));
  }
  std::string folder_;
};

void say(const std::string& what, int rank, const std::string& text) {
  std::ostringstream line;
  line.precision(15);
  line << what << '\t' << rank << '\t' << monotonic_seconds() << '\t' << text << '\n';
  [[maybe_unused]] const auto written = ::write(4, line.str().data(), line.str().size());
}

class Speaker final : public Listener {
 public:
  void on_message(Rank source, std::span<const std::byte> bytes) override {
    say("message", source, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void on_death(Rank rank, const std::string& why) override { say("death", rank, why); }
  void on_leave(Rank rank) override { say("leave", rank, ""); }
};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

/// A child that lives on with everything it inherited, as a DataLoader worker does, and uses the inherited Control.
void fork_child(Control& control, const std::string& end) {
  const pid_t child = ::fork();
  if (child == 0) {
    control.broadcast(bytes_of("from the child"));
    if (end == "exits") {
      control.leave();
      std::exit(0);  // with destructors of static objects
    }
    for (;;) ::pause();
  }
  if (end == "exits") {
    int status = 0;
    ::waitpid(child, &status, 0);
    say("forked", child, status == 0 ? "ok" : "status " + std::to_string(status));
  } else {
    say("forked", child, "lives");
  }
}

void obey(Control& control, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  std::string argument;
  Rank rank = kNoRank;
  words >> verb;
  if (verb == "broadcast" && words >> argument) control.broadcast(bytes_of(argument));
  if (verb == "send" && words >> rank >> argument) control.send(rank, bytes_of(argument));
  if (verb == "fork" && words >> argument) fork_child(control, argument);
  if (verb == "watch" && words >> rank) {
    const auto pid = static_cast<pid_t>(control.shape().members[static_cast<std::size_t>(rank)].pid);
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    control.watch(rank, pidfd);
    ::close(pidfd);
  }
  if (verb == "leave") {
    control.leave();
    say("left", -1, "");
  }
}

TEST(RankProcess, DISABLED_Body) {
  const char* setup = std::getenv(kVariable);
  ASSERT_NE(setup, nullptr) << "started by other tests only";
  JoinOptions options;
  Config config;
  std::string folder;
  std::istringstream(setup) >> options.rank >> options.world >> config.host >> folder;
  if (config.host == "-") config.host.clear();
  const auto facts = HostFacts::of_this_process(config);
  options.self.host_name = facts.alias.empty() ? facts.name : facts.alias;
  options.self.host_identity = facts.identity();
  options.self.version = "test 1";
  options.timeout = std::chrono::seconds(20);
  FolderStore store(folder);
  Speaker speaker;
  auto joined = Control::join(options, store, speaker);
  if (!joined) return say("failed", -1, joined.status().message());
  say("joined", -1, "");
  std::string line;
  while (std::getline(std::cin, line)) obey(**joined, line);
}

}  // namespace

double monotonic_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

StoreFolder::StoreFolder() {
  char name[] = "/tmp/neuron-store-XXXXXX";
  path_ = ::mkdtemp(name);
}
StoreFolder::~StoreFolder() { std::filesystem::remove_all(path_); }

RankProcess::RankProcess(int rank, int world, const std::string& host, const StoreFolder& store,
                         const std::vector<std::string>& prefix) {
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) std::abort();
  std::vector<std::string> words = prefix;
  words.insert(words.end(),
               {std::filesystem::read_symlink("/proc/self/exe").string(), "--gtest_also_run_disabled_tests",
                "--gtest_brief=1", "--gtest_filter=RankProcess.DISABLED_Body"});
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string setup =
      std::to_string(rank) + " " + std::to_string(world) + " " + (host.empty() ? "-" : host) + " " + store.path();
  pid_ = ::fork();
  if (pid_ == 0) {
    const int events = ::fcntl(from_child[1], F_DUPFD, 10);
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(events, 4);
    ::close(events);
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(null, STDOUT_FILENO);
    ::setenv(kVariable, setup.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  commands_ = to_child[1];
  events_ = from_child[0];
}

RankProcess::~RankProcess() {
  kill();
  ::close(commands_);
  ::close(events_);
}

void RankProcess::tell(const std::string& command) {
  const std::string line = command + "\n";
  ASSERT_EQ(::write(commands_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

bool RankProcess::read_more(std::chrono::milliseconds patience) {
  pollfd waiting{events_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return false;
  char bytes[4096];
  const ssize_t length = ::read(events_, bytes, sizeof bytes);
  if (length <= 0) return false;
  unread_.append(bytes, static_cast<std::size_t>(length));
  for (auto end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    std::istringstream line(unread_.substr(0, end));
    unread_.erase(0, end + 1);
    Event event;
    std::getline(line, event.what, '\t');
    line >> event.rank >> event.at;
    line.get();
    std::getline(line, event.text);
    heard_.push_back(std::move(event));
  }
  return true;
}

bool RankProcess::hears(const std::string& what, int rank, Event& event, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    for (const Event& each : heard_) {
      if (each.what != what || (rank >= 0 && each.rank != rank)) continue;
      event = each;
      return true;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !read_more(left)) return false;
  }
}

bool RankProcess::hears(const std::string& what, int rank, std::chrono::milliseconds patience) {
  Event event;
  return hears(what, rank, event, patience);
}

int RankProcess::count(const std::string& what) {
  while (read_more(std::chrono::milliseconds(0))) {
  }
  int count = 0;
  for (const Event& event : heard_) count += event.what == what ? 1 : 0;
  return count;
}

void RankProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void RankProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace neuron::control
