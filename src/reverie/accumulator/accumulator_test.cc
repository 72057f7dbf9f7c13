// Accumulators over real sockets on this machine, each with its own thread.
// tests/sim/accumulator_sim_test.cc tests their logic on a simulated network.
#include "reverie/accumulator/accumulator.h"

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "reverie/group/broker.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

constexpr std::size_t kNumbers = 20'000;  // 160 kB, which are sent in several parts
constexpr std::uint64_t kLastVersion = 60;

// What all members have observed: the first number of each version's model.
struct Seen {
  Mutex mutex;
  std::map<std::uint64_t, std::int64_t> models REVERIE_GUARDED_BY(mutex);
  std::atomic<int> differences{0};
  std::atomic<int> finished{0};

  void model(std::uint64_t version, std::int64_t value) {
    MutexLock lock(mutex);
    if (models.emplace(version, value).first->second != value) ++differences;
  }
};

class Trainer {
 public:
  // When a member leaves, the others may drop its last step and take another.
  Trainer(const std::string& name, const std::string& address, Seen& seen, bool leaves = false)
      : seen_(seen), leaves_(leaves), model_(kNumbers, static_cast<std::int64_t>(name.back())) {
    Peer::Options peer_options;
    peer_options.name = name;
    auto peer = Peer::make(peer_options);
    EXPECT_TRUE(peer.ok()) << peer.status().to_string();
    peer_ = std::move(*peer);
    EXPECT_TRUE(peer_->connect(address).ok());
    Group::Options group_options;
    group_options.name = "g";
    auto group = Group::join(peer_, group_options);
    EXPECT_TRUE(group.ok()) << group.status().to_string();
    group_ = std::move(*group);
    auto made = Accumulator::make(peer_, group_, options());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    accumulator_ = std::move(*made);
    accumulator_->set_virtual_batch_size(8);
  }

  static Accumulator::Options options() {
    Accumulator::Options made;
    made.name = "model";
    made.average = "sum";
    made.signature = {"int64[20000]"};
    made.gradients.resize(1);
    made.gradients[0].dtype = DType::kInt64;
    made.gradients[0].shape = {static_cast<std::int64_t>(kNumbers)};
    return made;
  }

  const std::shared_ptr<Peer>& peer() const { return peer_; }
  const std::shared_ptr<Group>& group() const { return group_; }
  Accumulator& accumulator() { return *accumulator_; }

  // One iteration of the training loop; returns the model's version.
  std::uint64_t turn() {
    Result<Accumulator::View> view = accumulator_->update(false);
    EXPECT_TRUE(view.ok()) << view.status().to_string();
    if (!view.ok()) return 0;
    if (view->state) {
      ValueReader reader(*view->state);
      const auto token = reader.next();
      EXPECT_TRUE(token.ok() && token->bytes.size() == std::as_bytes(std::span(model_)).size());
      std::copy(token->bytes.begin(), token->bytes.end(),
                std::as_writable_bytes(std::span(model_)).begin());
      seen_.model(view->version, model_.front());
    }
    if (view->sum) {
      std::vector<std::int64_t> total(kNumbers);
      view->sum->round->layout().unload(1, view->sum->round->reduced()->bytes(),
                                        reinterpret_cast<std::byte*>(total.data()));
      EXPECT_GE(view->sum->totals.samples, 8);
      EXPECT_EQ(total.front(), view->sum->totals.samples);  // each contributes a one per sample
      EXPECT_EQ(total.back(), view->sum->totals.samples);
      for (std::size_t i = 0; i < kNumbers; ++i) model_[i] = 3 * model_[i] % 1'000'003 + total[i];
      if (!leaves_) seen_.model(view->version, model_.front());
    }
    if (view->wants_state) {
      Payload value;
      ValueWriter(value).bytes(std::as_bytes(std::span(model_)));
      EXPECT_TRUE(accumulator_->give_state(value, false).ok());
    }
    if (view->wants_gradients && !view->sum) {
      const std::int64_t samples = 1 + static_cast<std::int64_t>(turns_++ % 5);
      const std::vector<std::int64_t> numbers(kNumbers, samples);
      ReduceLeaf leaf = options().gradients[0];
      leaf.bytes = std::as_bytes(std::span(numbers));
      EXPECT_TRUE(accumulator_->contribute(static_cast<std::uint64_t>(samples), {&leaf, 1}).ok());
    }
    return view->version;
  }

 private:
  Seen& seen_;
  bool leaves_;
  std::vector<std::int64_t> model_;
  std::uint64_t turns_ = 0;
  std::shared_ptr<Peer> peer_;
  std::shared_ptr<Group> group_;
  std::unique_ptr<Accumulator> accumulator_;
};

class AccumulatorTest : public ::testing::Test {
 protected:
  AccumulatorTest() {
    Peer::Options options;
    options.name = "broker";
    auto peer = Peer::make(options);
    EXPECT_TRUE(peer.ok());
    peer_ = std::move(*peer);
    auto broker = Broker::make(peer_);
    EXPECT_TRUE(broker.ok());
    broker_ = std::move(*broker);
    const auto address = peer_->listen("127.0.0.1:0");
    EXPECT_TRUE(address.ok());
    address_ = *address;
  }

  std::shared_ptr<Peer> peer_;
  std::unique_ptr<Broker> broker_;
  std::string address_;
};

TEST_F(AccumulatorTest, TrainsOneModelOnThreadsWhileMembersJoinAndLeave) {
  constexpr int kLasting = 2;
  Seen seen;
  std::vector<std::thread> threads;
  for (int i = 0; i < kLasting; ++i) {
    threads.emplace_back([&, i] {
      Trainer trainer("m" + std::to_string(i), address_, seen);
      bool has_finished = false;
      EXPECT_TRUE(test::eventually([&] {
        if (trainer.turn() >= kLastVersion && !std::exchange(has_finished, true)) ++seen.finished;
        return seen.finished == kLasting;  // a member that ends earlier would be missing in rounds
      }));
    });
  }
  threads.emplace_back([&] {
    for (int life = 0; life < 3; ++life) {  // joins, takes some steps, and leaves
      Trainer trainer("guest", address_, seen, /*leaves=*/true);
      std::uint64_t first = 0;
      EXPECT_TRUE(test::eventually([&] {
        const std::uint64_t version = trainer.turn();
        if (first == 0) first = version;
        return (first > 0 && version >= first + 3) || seen.finished > 0;
      }));
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.differences, 0);
}

TEST_F(AccumulatorTest, AddsHalfPrecisionGradientsToThoseOfTheSameRound) {
  Seen seen;
  Trainer trainer("m", address_, seen);
  Accumulator::Options options = Trainer::options();
  options.name = "halves";
  options.gradients[0].dtype = DType::kBFloat16;
  options.gradients[0].shape = {2};
  const auto accumulator = Accumulator::make(trainer.peer(), trainer.group(), options);
  ASSERT_TRUE(accumulator.ok()) << accumulator.status().to_string();
  (*accumulator)->set_virtual_batch_size(2);
  Result<Accumulator::View> view = Accumulator::View();
  const auto updated_until = [&](const auto& condition) {
    return test::eventually([&] {
      view = (*accumulator)->update(false);
      return !view.ok() || condition(*view);
    });
  };
  ASSERT_TRUE(updated_until([](const Accumulator::View& now) { return now.wants_gradients; }));
  const std::array<std::uint16_t, 2> numbers = {0x3f80, 0xc000};  // 1 and -2
  ReduceLeaf leaf = options.gradients[0];
  leaf.bytes = std::as_bytes(std::span(numbers));
  ASSERT_TRUE((*accumulator)->contribute(1, {&leaf, 1}).ok());
  ASSERT_TRUE((*accumulator)->contribute(1, {&leaf, 1}, /*weight=*/3).ok());
  ASSERT_TRUE(updated_until([](const Accumulator::View& now) { return now.sum.has_value(); }));
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  std::array<std::uint16_t, 2> total = {};
  view->sum->round->layout().unload(1, view->sum->round->reduced()->bytes(),
                                    std::as_writable_bytes(std::span(total)).data());
  EXPECT_EQ(total, (std::array<std::uint16_t, 2>{0x4080, 0xc100}));  // 4 and -8
}

TEST_F(AccumulatorTest, RefusesASecondAccumulatorMismatchedArraysAndLargeStates) {
  Seen seen;
  Trainer trainer("m", address_, seen);
  const auto second = Accumulator::make(trainer.peer(), trainer.group(), Trainer::options());
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  Accumulator::Options long_name = Trainer::options();
  long_name.name = std::string(500, 'x');
  EXPECT_EQ(Accumulator::make(trainer.peer(), trainer.group(), long_name).status().code(),
            StatusCode::kInvalidArgument);
  Payload state;
  state.head.resize(std::size_t{64} << 20);  // fits in a message, but not with what else is in it
  EXPECT_EQ(trainer.accumulator().give_state(state, false).code(), StatusCode::kInvalidArgument);
  ReduceLeaf other = Trainer::options().gradients[0];
  other.dtype = DType::kFloat32;
  EXPECT_EQ(trainer.accumulator().contribute(1, {&other, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(trainer.accumulator().contribute(1, {}).code(), StatusCode::kInvalidArgument);
  trainer.accumulator().close();
  trainer.accumulator().close();
  EXPECT_EQ(trainer.accumulator().update(false).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Accumulator::make(trainer.peer(), trainer.group(), Trainer::options()).ok());
}

}  // namespace
}  // namespace reverie
