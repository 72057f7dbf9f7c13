#include "reverie/base/ref.h"

#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

class Thing : public RefCounted<Thing> {
 public:
  Thing(int value, int& deleted) : value_(value), deleted_(deleted) {}
  ~Thing() { ++deleted_; }
  int value() const { return value_; }

 private:
  int value_;
  int& deleted_;
};

TEST(Ref, IsOneWordWide) {
  EXPECT_EQ(sizeof(Ref<Thing>), sizeof(void*));
}

TEST(Ref, TheLastRefDeletesTheObject) {
  int deleted = 0;
  {
    const Ref<Thing> first = make_ref<Thing>(7, deleted);
    EXPECT_EQ(first->ref_count(), 1u);
    {
      const Ref<Thing> second = first;
      EXPECT_EQ(first->ref_count(), 2u);
      EXPECT_EQ(second->value(), 7);
      EXPECT_EQ(first, second);
    }
    EXPECT_EQ(first->ref_count(), 1u);
    EXPECT_EQ(deleted, 0);
  }
  EXPECT_EQ(deleted, 1);
}

TEST(Ref, MovesWithoutCounting) {
  int deleted = 0;
  Ref<Thing> from = make_ref<Thing>(7, deleted);
  const Ref<Thing> to = std::move(from);
  EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): a moved-from Ref is empty
  EXPECT_EQ(to->ref_count(), 1u);
}

TEST(Ref, AssignmentReleasesWhatItHeld) {
  int deleted = 0;
  Ref<Thing> ref = make_ref<Thing>(1, deleted);
  ref = make_ref<Thing>(2, deleted);
  EXPECT_EQ(deleted, 1);
  ref = *&ref;  // through a pointer, since compilers warn about plain self-assignment
  EXPECT_EQ(ref->value(), 2);
  EXPECT_EQ(ref->ref_count(), 1u);
  ref = {};
  EXPECT_EQ(deleted, 2);
}

TEST(Ref, ConvertsToARefToConst) {
  int deleted = 0;
  const Ref<Thing> ref = make_ref<Thing>(7, deleted);
  const Ref<const Thing> view = ref;
  EXPECT_EQ(view->value(), 7);
  EXPECT_EQ(ref->ref_count(), 2u);
  EXPECT_FALSE((std::is_convertible_v<Ref<const Thing>, Ref<Thing>>));
}

TEST(Ref, ReleaseGivesUpTheCountAndAdoptTakesItBack) {
  int deleted = 0;
  Thing* const raw = make_ref<Thing>(7, deleted).release();
  EXPECT_EQ(deleted, 0);
  EXPECT_EQ(raw->ref_count(), 1u);
  {
    const Ref<Thing> shared = Ref<Thing>::share(raw);
    EXPECT_EQ(raw->ref_count(), 2u);
  }
  { const Ref<Thing> adopted = Ref<Thing>::adopt(raw); }
  EXPECT_EQ(deleted, 1);
}

TEST(Ref, SharingNullGivesAnEmptyRef) {
  EXPECT_FALSE(Ref<Thing>::share(nullptr));
  EXPECT_FALSE(Ref<Thing>());
}

TEST(Ref, CountsCorrectlyFromManyThreads) {
  int deleted = 0;
  {
    const Ref<Thing> ref = make_ref<Thing>(7, deleted);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([ref] {
        for (int i = 0; i < 10'000; ++i) {
          const Ref<Thing> copy = ref;
          ASSERT_EQ(copy->value(), 7);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    EXPECT_EQ(ref->ref_count(), 1u);
  }
  EXPECT_EQ(deleted, 1);
}

}  // namespace
}  // namespace reverie
