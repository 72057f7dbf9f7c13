// Waiting for a word in shared memory to change, within a process or between several.
//
//     waiter                                     waker
//     seen = word.load()                         word.store(next)  or  fetch_add(1)
//     if not yet: futex_wait(word, seen, limit)  futex_wake_all(word)
//
// The kernel compares the word with `seen` before the waiter sleeps, so it never sleeps through a
// change in between. No thread polls; a short spin before the sleep is the caller's choice.
#pragma once

#include <atomic>
#include <cstdint>

#include "reverie/base/clock.h"

namespace reverie {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(FutexWord::is_always_lock_free && sizeof(FutexWord) == 4,
              "the kernel and other processes see the word itself");

// Sleeps while `word` holds `seen`, for `at_most`. Returns early when woken, when the word differs,
// on a signal, or spuriously: callers check again.
void futex_wait(const FutexWord& word, std::uint32_t seen, Duration at_most);

// Wakes all that sleep on `word`, in any process.
void futex_wake_all(FutexWord& word);

// Spins until `word` differs from `seen`, for `at_most`. True if it differs.
bool spin_while_equal(const FutexWord& word, std::uint32_t seen, Duration at_most);

}  // namespace reverie
