// A model of who drives the engine (baton.h, engine_drive.cc), explored exhaustively: every interleaving of waiters, an
// issuer, a remote message and the background thread, one atomic operation at a time. From every state that can be
// reached, the end (all operations done, all messages taken, all waiters gone) can be reached too, without a timer but
// the watch's own.
//
// The model keeps the order of the real code's atomic operations; each Flaw leaves one out, and must be found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/random.h"

namespace neuron {
namespace {

enum class Flaw : std::uint8_t {
  none,
  sleeps_without_a_look,       // a waiter does not look at the baton again once it is registered
  release_wakes_nobody,        // who gives the baton back lets the sleepers sleep
  leaves_work_silently,        // ... and says nothing to the background thread when it leaves work
  leaves_idle_silently,        // ... and does not tell an idle background thread that the watch is free
  leaves_transports_unarmed,   // ... and does not arm the transports for a deep sleeper
  blocks_without_a_look,       // a driver sleeps without looking at what was submitted
  issues_silently,             // the issuer does not ring
  sleeps_deep_without_a_look,  // the background thread sleeps without looking at what was submitted
};

constexpr int kWaiters = 2;  // operations 0 and 1 are theirs; 2 is the issuer's

enum class Background : std::uint8_t { none, awake, watch, deep, idle };

enum Where : std::uint8_t {  // what a thread does next
  kSubmit,
  kLook,
  kTake,
  kWakeDriver,
  kRegister,
  kLookDone,
  kLookHeld,
  kUnlock,
  kAsleep,
  kDeregister,
  kGone,
  kDisarm,
  kTakeOver,
  kProgress,
  kNotify,
  kDecide,
  kMarkBlocked,
  kLookSubmitted,
  kArm,
  kLookArrived,
  kBlocked,
  kWoken,
  kSilence,
  kUnmarkBlocked,
  kReadBackground,
  kReadWork,
  kArmForDeep,
  kLookArmed,
  kRelease,
  kLookSleepers,
  kWakeSleeper,
  kAfterRelease,
  kWakeBackground,
  kIssueWakeDriver,
  kIssueWakeBackground,
  kBackTake,
  kBackMarkIdle,
  kBackTakeAgain,
  kBackWaitIdle,
  kBackSilence,
  kBackMarkAwake,
  kBackOwn,
  kBackDisarm,
  kBackSilenceEngine,
  kBackDecide,
  kBackDepth,
  kBackArm,
  kBackLookArmed,
  kBackMarkDepth,
  kBackRelease,
  kBackLookSubmitted,
  kBackSleep,
  kDeliver,
  kRingAsleep,
};

struct Thread {
  Where at = kSubmit;
  Where back = kDecide;       // where a step under the baton returns to
  std::uint8_t notified = 0;  // operation that is being announced
  Background seen = Background::awake;
  bool leaves_work = false;
  bool woke = false;
};

struct State {
  std::array<Thread, kWaiters + 3> threads{};  // waiters, issuer, background, remote
  bool held = false;
  bool is_blocked = false;
  bool doorbell = false;
  bool bell = false;
  bool asleep = false;          // the transports are armed
  std::uint8_t mutex = 0;       // thread + 1
  std::uint8_t registered = 0;  // bit per waiter
  std::uint8_t first = 0;       // who registered first
  std::uint8_t woken = 0;
  std::uint8_t submitted = 0;  // bit per operation
  std::uint8_t taken_over = 0;
  std::uint8_t mailbox = 0;      // messages that lie there: for operation 1 (bit 0), for none (bit 1)
  std::uint8_t arrived = 0b111;  // operations that need no message any more
  std::uint8_t done = 0;
  std::uint8_t all = 0;    // operations of this model
  bool may_watch = false;  // instead of sleeping deeply at once; so of the model, not of the state
  Background background = Background::awake;
  Background depth = Background::watch;

  using Key = std::array<std::uint64_t, 2>;
  /// The whole state, packed.
  [[nodiscard]] Key key() const {
    Key packed{};
    unsigned used = 0;
    const auto put = [&](auto value, unsigned bits) {
      if (used / 64 != (used + bits - 1) / 64) used = 64;
      packed[used / 64] |= static_cast<std::uint64_t>(value) << used % 64;
      used += bits;
    };
    for (const Thread& t : threads) {
      put(t.at, 6),
          put(t.back == kDecide           ? 0
              : t.back == kReadBackground ? 1
                                          : 2,
              2),
          put(t.notified, 2), put(t.seen, 3), put(t.leaves_work, 1), put(t.woke, 1);
    }
    put(held, 1), put(is_blocked, 1), put(doorbell, 1), put(bell, 1), put(asleep, 1), put(mutex, 3), put(registered, 2);
    put(first, 1), put(woken, 2), put(submitted, 3), put(taken_over, 3), put(mailbox, 2), put(arrived, 4), put(done, 3);
    put(background, 3), put(depth, 2);
    return packed;
  }
  [[nodiscard]] bool is_over() const {
    const bool all_gone =
        threads[0].at == kGone && threads[1].at == kGone && threads[2].at == kGone && threads[4].at == kGone;
    return all_gone && done == all && mailbox == 0;
  }
  [[nodiscard]] bool has_work() const { return (taken_over & ~done) != 0 || submitted != 0; }
};

constexpr std::size_t kIssuer = kWaiters;
constexpr std::size_t kBackground = kWaiters + 1;
constexpr std::size_t kRemote = kWaiters + 2;

class Model {
 public:
  explicit Model(Flaw flaw) : flaw_(flaw) {}

  /// The states after one operation of a thread; none if it must wait.
  std::vector<State> next(const State& state, std::size_t index) const {
    std::vector<State> result{state};
    if (!advance(result[0], index)) return {};
    if (result[0].threads[index].at != kBackDepth) return result;
    // How recently the engine was used decides how deeply it sleeps.
    result[0].depth = Background::deep;
    result[0].threads[index].at = kBackArm;
    if (!state.may_watch) return result;
    result.push_back(state);
    result[1].depth = Background::watch;
    result[1].threads[index].at = kBackMarkDepth;
    return result;
  }

 private:
  static bool sleeps(Background state) { return state != Background::none && state != Background::awake; }

  /// False: blocked.
  bool advance(State& s, std::size_t i) const {
    Thread& t = s.threads[i];
    const auto bit = static_cast<std::uint8_t>(1U << i);
    const auto go = [&](Where to) {
      t.at = to;
      if (to != kLook && to != kGone && to != kBackTake) return true;
      t = Thread{};  // what it knew is of no further use: fewer states
      t.at = to;
      return true;
    };
    switch (t.at) {
      // ---- wait() ----
      case kSubmit:
        s.submitted |= bit;
        return go(i == kIssuer ? kIssueWakeDriver : kLook);
      case kLook:
        return go((s.done & bit) != 0 ? kGone : kTake);
      case kTake:
        if (s.held) return go(kWakeDriver);
        s.held = true;
        t.back = kDecide;
        return go(kDisarm);
      case kWakeDriver:
        if (s.is_blocked) s.doorbell = true;
        return go(kRegister);
      case kRegister:
        if (s.mutex != 0) return false;
        s.mutex = static_cast<std::uint8_t>(i + 1);
        if (s.registered == 0) s.first = static_cast<std::uint8_t>(i);
        s.registered |= bit;
        s.woken &= static_cast<std::uint8_t>(~bit);
        return go(flaw_ == Flaw::sleeps_without_a_look ? kUnlock : kLookDone);
      case kLookDone:
        return go((s.done & bit) != 0 ? kDeregister : kLookHeld);
      case kLookHeld:
        return go(s.held ? kUnlock : kDeregister);
      case kUnlock:
        s.mutex = 0;
        return go(kAsleep);
      case kAsleep:
        if ((s.woken & bit) == 0 || s.mutex != 0) return false;
        s.mutex = static_cast<std::uint8_t>(i + 1);
        return go(kDeregister);
      case kDeregister:
        s.registered &= static_cast<std::uint8_t>(~bit);
        if (s.registered != 0) s.first = (s.registered & 1) != 0 ? 0 : 1;
        s.mutex = 0;
        return go(kLook);
      case kGone:
        return false;

      // ---- step(), by whoever holds the baton ----
      case kDisarm:
        s.asleep = false;
        return go(kTakeOver);
      case kTakeOver:
        s.taken_over |= s.submitted;
        s.submitted = 0;
        return go(kProgress);
      case kProgress: {
        if ((s.mailbox & 1) != 0) s.arrived |= 0b010;
        s.mailbox = 0;
        const int finished = s.taken_over & s.arrived & ~s.done;
        if (finished == 0) return go(t.back);
        t.notified = static_cast<std::uint8_t>(__builtin_ctz(static_cast<unsigned>(finished)));
        s.done |= static_cast<std::uint8_t>(1U << t.notified);
        return go(kNotify);
      }
      case kNotify: {
        const auto operation = static_cast<std::uint8_t>(1U << t.notified);
        if (s.registered == 0) return go(kProgress);
        if (s.mutex != 0) return false;
        s.woken |= s.registered & operation;
        return go(kProgress);
      }
      case kDecide:
        return go((s.done & bit) != 0 ? kReadBackground : kMarkBlocked);

      // ---- block() ----
      case kMarkBlocked:
        s.is_blocked = true;
        return go(flaw_ == Flaw::blocks_without_a_look ? kArm : kLookSubmitted);
      case kLookSubmitted:
        return go(s.submitted != 0 ? kUnmarkBlocked : kArm);
      case kArm:
        s.asleep = true;
        return go(kLookArrived);
      case kLookArrived:
        if (s.mailbox == 0) return go(kBlocked);
        s.asleep = false;
        return go(kUnmarkBlocked);
      case kBlocked:
        return s.doorbell && go(kWoken);
      case kWoken:
        s.asleep = false;
        return go(kSilence);
      case kSilence:
        s.doorbell = false;
        return go(kUnmarkBlocked);
      case kUnmarkBlocked:
        s.is_blocked = false;
        return go(kTakeOver);

      // ---- give_back() ----
      case kReadBackground:
        t.seen = s.background;
        return go(kReadWork);
      case kReadWork:
        t.leaves_work = s.has_work();
        return go(t.seen == Background::deep && !t.leaves_work && flaw_ != Flaw::leaves_transports_unarmed ? kArmForDeep
                                                                                                           : kRelease);
      case kArmForDeep:
        s.asleep = true;
        return go(kLookArmed);
      case kLookArmed:
        if (s.mailbox == 0) return go(kRelease);
        s.asleep = false;
        t.back = kReadBackground;
        return go(kTakeOver);
      case kRelease:
        s.held = false;
        return go(flaw_ == Flaw::release_wakes_nobody ? kAfterRelease : kLookSleepers);
      case kLookSleepers:
        if (s.registered != 0) return go(kWakeSleeper);
        t.woke = false;
        return go(i == kBackground ? kBackLookSubmitted : kAfterRelease);
      case kWakeSleeper: {
        if (s.mutex != 0) return false;
        const int asleep = s.registered & ~s.woken;
        t.woke = asleep != 0;
        if (asleep != 0) {
          const int first = 1 << s.first;
          s.woken |= static_cast<std::uint8_t>((asleep & first) != 0 ? first : asleep);
        }
        if (i == kBackground) return go(kBackLookSubmitted);
        return go(t.woke ? kLook : kAfterRelease);
      }
      case kAfterRelease:
        if (t.leaves_work || s.submitted != 0) return go(flaw_ == Flaw::leaves_work_silently ? kLook : kWakeBackground);
        if (s.background == Background::idle && flaw_ != Flaw::leaves_idle_silently) s.bell = true;
        return go(kLook);
      case kWakeBackground:
        s.bell |= sleeps(s.background);
        return go(kLook);

      // ---- the issuer ----
      case kIssueWakeDriver:
        if (flaw_ == Flaw::issues_silently) return go(kGone);
        if (s.is_blocked) s.doorbell = true;
        return go(kIssueWakeBackground);
      case kIssueWakeBackground:
        s.bell |= sleeps(s.background);
        return go(kGone);

      // ---- background() ----
      case kBackTake:
        if (s.held) return go(kBackMarkIdle);
        s.held = true;
        return go(kBackOwn);
      case kBackMarkIdle:
        s.background = Background::idle;
        return go(kBackTakeAgain);
      case kBackTakeAgain:
        if (s.held) return go(kBackWaitIdle);
        s.held = true;
        return go(kBackOwn);
      case kBackWaitIdle:
        return s.bell && go(kBackSilence);
      case kBackSilence:
        s.bell = false;
        return go(kBackMarkAwake);
      case kBackMarkAwake:
        s.background = Background::awake;
        return go(kBackTake);
      case kBackOwn:
        s.background = Background::awake;
        return go(kBackDisarm);
      case kBackDisarm:
        s.asleep = false;
        return go(kBackSilenceEngine);
      case kBackSilenceEngine:
        s.doorbell = false;
        t.back = kBackDecide;
        return go(kTakeOver);
      case kBackDecide:
        if (!s.has_work()) return go(kBackDepth);
        if (s.registered == 0) return go(kMarkBlocked);
        t.seen = Background::awake;  // gives way: release, and try again
        return go(kBackRelease);
      case kBackDepth:
        return true;
      case kBackArm:
        s.asleep = true;
        return go(kBackLookArmed);
      case kBackLookArmed:
        if (s.mailbox == 0) return go(kBackMarkDepth);
        s.asleep = false;
        t.seen = Background::awake;
        return go(kBackRelease);
      case kBackMarkDepth:
        s.background = s.depth;
        t.seen = s.depth;
        return go(kBackRelease);
      case kBackRelease:
        s.held = false;
        return go(kLookSleepers);
      case kBackLookSubmitted:
        if (t.seen == Background::awake) return go(kBackTake);
        if (s.submitted != 0 && !t.woke && flaw_ != Flaw::sleeps_deep_without_a_look) return go(kBackSilence);
        return go(kBackSleep);
      case kBackSleep:
        if (t.seen == Background::watch || s.bell || s.doorbell) return go(kBackSilence);
        return false;

      // ---- the remote rank ----
      case kDeliver:
        s.mailbox = (s.arrived & 0b010) != 0 ? 2 : 1;
        return go(kRingAsleep);
      case kRingAsleep:
        if (s.asleep) s.doorbell = true;
        return go(kGone);
    }
    return false;
  }

  const Flaw flaw_;
};

constexpr std::size_t kStatesExpected = 500'000;

struct Exploration {
  std::size_t states = 0;
  std::size_t lost = 0;  // states from which the end cannot be reached any more
};

/// Who takes part.
enum class Company : std::uint8_t {
  two_waiters,         // and the background thread
  waiters_alone,       // without one; operation 1 needs a message
  waiter_and_issuer,   // and the background thread; operation 1 needs a message
  unexpected_message,  // as before, but the message is for nobody: somebody must take it nevertheless
};
constexpr std::array kCompanies = {Company::waiters_alone, Company::unexpected_message, Company::waiter_and_issuer,
                                   Company::two_waiters};

State initial_state(Company company) {
  const bool has_issuer = company == Company::waiter_and_issuer || company == Company::unexpected_message;
  State state;
  state.threads[has_issuer ? 0 : kIssuer].at = kGone;
  state.all = has_issuer ? 0b110 : 0b011;
  state.threads[kBackground].at = company == Company::waiters_alone ? kGone : kBackTake;
  if (company == Company::waiters_alone) state.background = Background::none;
  state.may_watch = company == Company::waiter_and_issuer;
  state.threads[kRemote].at = company == Company::two_waiters ? kGone : kDeliver;
  if (company == Company::waiters_alone || company == Company::waiter_and_issuer) state.arrived = 0b101;
  return state;
}

struct HashKey {
  std::size_t operator()(const State::Key& key) const { return Random::mix(key[0] ^ Random::mix(key[1])); }
};

Exploration explore(Company company, Flaw flaw) {
  const Model model(flaw);
  std::unordered_map<State::Key, std::uint32_t, HashKey> number_of(kStatesExpected);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> steps;  // to, from
  std::vector<std::uint32_t> over;
  std::deque<std::pair<State, std::uint32_t>> unexplored;
  const auto reach = [&](const State& state) {
    const auto [entry, is_new] = number_of.try_emplace(state.key(), static_cast<std::uint32_t>(number_of.size()));
    if (is_new) {
      unexplored.emplace_back(state, entry->second);
      if (state.is_over()) over.push_back(entry->second);
    }
    return entry->second;
  };
  reach(initial_state(company));
  while (!unexplored.empty()) {
    const auto [state, number] = std::move(unexplored.front());
    unexplored.pop_front();
    if (state.is_over()) continue;
    for (std::size_t i = 0; i < state.threads.size(); ++i) {
      for (const State& after : model.next(state, i)) steps.emplace_back(reach(after), number);
    }
  }
  const std::size_t states = number_of.size();
  std::vector<std::uint32_t> first(states + 1, 0);  // of the steps to a state, in `from`
  for (const auto& step : steps) ++first[step.first + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint32_t> from(steps.size());
  std::vector<std::uint32_t> filled = first;
  for (const auto& step : steps) from[filled[step.first]++] = step.second;

  std::vector<bool> ends(states, false);
  std::size_t ending = 0;
  while (!over.empty()) {
    const std::uint32_t number = over.back();
    over.pop_back();
    if (ends[number]) continue;
    ends[number] = true;
    ++ending;
    over.insert(over.end(), from.begin() + first[number], from.begin() + first[number + 1]);
  }
  return {states, states - ending};
}

class DrivingModel : public ::testing::TestWithParam<Company> {};

TEST_P(DrivingModel, AlwaysReachesTheEnd) {
  const Exploration exploration = explore(GetParam(), Flaw::none);
  EXPECT_GT(exploration.states, 1000U);
  EXPECT_EQ(exploration.lost, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, DrivingModel, ::testing::ValuesIn(kCompanies));

class DrivingFlaw : public ::testing::TestWithParam<Flaw> {};

TEST_P(DrivingFlaw, IsFound) {
  EXPECT_TRUE(std::any_of(kCompanies.begin(), kCompanies.end(),
                          [](Company company) { return explore(company, GetParam()).lost > 0; }));
}

INSTANTIATE_TEST_SUITE_P(All, DrivingFlaw,
                         ::testing::Values(Flaw::sleeps_without_a_look, Flaw::release_wakes_nobody,
                                           Flaw::leaves_work_silently, Flaw::leaves_idle_silently,
                                           Flaw::leaves_transports_unarmed, Flaw::blocks_without_a_look,
                                           Flaw::issues_silently, Flaw::sleeps_deep_without_a_look));

}  // namespace
}  // namespace neuron
