// A regression in four processes that average their parameters; one is killed and restarted.
//
//     worker 0: 8 steps on its own data --\.
//     worker 1: 8 steps on its own data ---> mean of all parameters --> 8 steps ...
//     worker 2: 8 steps on its own data --/
//     worker 3: killed after a while, and restarted with the parameters of the others
//
// This is examples/parameter_averaging.py in C++. Started without arguments it runs the broker, and
// starts itself as the workers.
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include <spawn.h>
#include <sys/wait.h>

#include "reverie/group/broker.h"
#include "reverie/group/group.h"

namespace {

using namespace reverie;

constexpr int kWorkers = 4;
constexpr int kRounds = 60;
constexpr std::size_t kSize = 8;
using Vector = std::array<double, kSize>;

double truth(std::size_t i) {
  return -1.0 + 2.0 * static_cast<double>(i) / (kSize - 1);
}

// Eight steps of gradient descent, each on a noisy sample of the true line.
void descend(Vector& weights, std::mt19937& random) {
  std::normal_distribution<double> normal;
  for (int step = 0; step < 8; ++step) {
    Vector x{};
    double error = 0.1 * normal(random);
    for (std::size_t i = 0; i < kSize; ++i) {
      x[i] = normal(random);
      error += x[i] * (weights[i] - truth(i));
    }
    for (std::size_t i = 0; i < kSize; ++i) weights[i] -= 0.02 * error * x[i];
  }
}

Status work(const std::string& address, int index) {
  std::mt19937 random(static_cast<unsigned>(index));
  Peer::Options options;
  options.name = "worker-" + std::to_string(index);
  REVERIE_ASSIGN_OR_RETURN(auto made, Peer::make(options));
  const std::shared_ptr<Peer> peer = std::move(made);
  REVERIE_RETURN_IF_ERROR(peer->connect(address));
  REVERIE_ASSIGN_OR_RETURN(const auto group, Group::join(peer, {.name = "regression"}));
  const TimePoint limit = Clock::system().now() + std::chrono::minutes(2);
  REVERIE_RETURN_IF_ERROR(group->wait_members(2, limit));
  Vector weights{};
  int turns = 0;
  for (double done = 0; done < kRounds; ++turns) {
    // A new member contributes nothing yet, and takes the others' parameters.
    const double share = turns > 0 ? 1.0 : 0.0;
    if (turns > 0) descend(weights, random);
    std::array<double, kSize + 2> mine{};
    for (std::size_t i = 0; i < kSize; ++i) mine[i] = share * weights[i];
    mine[kSize] = share;
    mine[kSize + 1] = share * done;
    const ReduceLeaf leaf{"sums",
                          DType::kFloat64,
                          {static_cast<std::int64_t>(mine.size())},
                          std::as_bytes(std::span(mine))};
    const auto round = group->all_reduce("average", ReduceOp::kSum, {&leaf, 1}, limit);
    const Status status = round.ok() ? (*round)->wait(limit) : round.status();
    if (status.code() == StatusCode::kUnavailable ||
        status.code() == StatusCode::kFailedPrecondition) {
      REVERIE_RETURN_IF_ERROR(group->wait_members(1, limit));  // continues with those that are left
      continue;
    }
    REVERIE_RETURN_IF_ERROR(status);
    (*round)->layout().unload(0, (*round)->reduced()->bytes(),
                              reinterpret_cast<std::byte*>(mine.data()));
    if (mine[kSize] > 0) {
      for (std::size_t i = 0; i < kSize; ++i) weights[i] = mine[i] / mine[kSize];
      done = std::round(mine[kSize + 1] / mine[kSize]) + 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  double largest = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    largest = std::max(largest, std::abs(weights[i] - truth(i)));
  }
  std::printf("worker %d: %d rounds, largest error %.3f\n", index, turns, largest);
  return largest < 0.1 ? Status() : internal_error("worker {} has an error of {}", index, largest);
}

pid_t start(std::string address, int index) {
  std::string program = "/proc/self/exe";
  std::string number = std::to_string(index);
  char* const arguments[] = {program.data(), address.data(), number.data(), nullptr};
  pid_t pid = 0;
  return posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environ) == 0 ? pid : -1;
}

Status run() {
  Peer::Options options;
  options.name = "broker";
  REVERIE_ASSIGN_OR_RETURN(auto made, Peer::make(options));
  const std::shared_ptr<Peer> peer = std::move(made);
  REVERIE_ASSIGN_OR_RETURN(const auto broker, Broker::make(peer));
  REVERIE_ASSIGN_OR_RETURN(const std::string address, peer->listen("127.0.0.1:0"));
  const auto wait_until = [&](auto holds) {
    const auto members = [&] {
      const auto groups = broker->groups();
      return groups.empty() ? std::size_t{0} : groups.front().membership.members.size();
    };
    while (!holds(members())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  std::array<pid_t, kWorkers> workers{};
  for (int i = 0; i < kWorkers; ++i) workers[static_cast<std::size_t>(i)] = start(address, i);
  wait_until([](std::size_t count) { return count == kWorkers; });
  kill(workers[3], SIGKILL);
  waitpid(workers[3], nullptr, 0);
  wait_until([](std::size_t count) { return count < kWorkers; });
  workers[3] = start(address, 3);
  bool is_good = true;
  for (const pid_t worker : workers) {
    int how = 0;
    is_good = waitpid(worker, &how, 0) == worker && how == 0 && is_good;
  }
  return is_good ? Status() : internal_error("a worker failed");
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = argc == 3 ? work(argv[1], std::atoi(argv[2])) : run();
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return EXIT_FAILURE;
}
