// What a table is and how it stands: the values that describe it at every door.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/options.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// A selector or an extension by the name it is registered under: {"Prioritized",
// {{"priority_exponent", 0.6}}}.
struct ComponentSpec {
  std::string name;
  Options options;

  friend bool operator==(const ComponentSpec&, const ComponentSpec&) = default;
};

// The four numbers of a rate limiter; see replay/rate_limiter.h.
struct RateLimiterSpec {
  double samples_per_insert = 1.0;
  std::int64_t min_size_to_sample = 1;
  double min_diff = 0.0;
  double max_diff = 0.0;

  friend bool operator==(const RateLimiterSpec&, const RateLimiterSpec&) = default;
};

// What a call that is confirmed may rely on: docs/durability.md.
enum class Durability {
  kNone,      // the change is in memory
  kInterval,  // the operating system has its record; it is synced from time to time
  kSync,      // its record was synced
};

// What a table is made from.
struct TableOptions {
  std::string name;
  ComponentSpec sampler;
  ComponentSpec remover;
  std::int64_t max_size = 0;
  std::optional<std::int64_t> max_bytes;  // of the chunks its items refer to, each counted once
  // The bound of those chunks' bytes that may be in memory, beside the store's. It belongs to the
  // place where the table is, and not to the table: checkpoints do not hold it.
  std::optional<std::int64_t> memory_bytes;
  // What its confirmed changes may rely on, where that is not its store's. It belongs to the place,
  // too.
  std::optional<Durability> durability;
  std::int64_t max_times_sampled = 0;  // below 1: without limit
  RateLimiterSpec rate_limiter;
  std::vector<ComponentSpec> extensions;
  std::optional<Signature> signature;
  // Whether items must fit the signature. If not, it only informs readers and writers.
  bool checks_items = true;
  // For a table with max_times_sampled: whether a server undoes samples that it drew for a reader
  // and had not sent when that reader went away.
  bool undoes_unsent = false;
  // Whether items are found by their keys and episodes are counted. Where not, the table saves the
  // map from keys to items, 22 bytes an item: keys mean nothing, and only a ticket finds an item.
  // It takes whole steps of many environments at once (ReplayService::insert_views).
  bool is_keyed = true;
};

struct TableInfo {
  TableOptions options;
  std::int64_t current_size = 0;
  std::int64_t size_bytes =
      0;  // of the chunks its items refer to; only counted where max_bytes is set
  std::int64_t num_episodes = 0;
  std::int64_t num_deleted_episodes = 0;
  std::int64_t num_unique_samples = 0;
  // The limiter's counts.
  std::int64_t inserts = 0;
  std::int64_t samples = 0;
  std::int64_t deletes = 0;
  // The largest priority since the table was made or reset; 1 before the first.
  double max_priority = 1.0;
  // Waiting now, and how long requests waited in all.
  std::int64_t pending_inserts = 0;
  std::int64_t pending_samples = 0;
  double insert_wait_s = 0;
  double sample_wait_s = 0;
  // Updates by key or ticket that found no item.
  std::int64_t missing_updates = 0;
  // Items that a reader could not decode, and that were taken out.
  std::int64_t corrupt_items = 0;
};

// Why requests of a table wait.
struct BlockedReport {
  struct Side {
    std::int64_t waiting = 0;     // requests
    double longest_wait_s = 0;    // of the one that waits longest
    std::string longest_request;  // what it is: "insert of 3 items (1 done)"
    std::string reason;  // which bound holds, the current value and by how much; empty if none
  };
  Side inserts;
  Side samples;

  // A line for people.
  std::string text(const std::string& table) const;
};

}  // namespace reverie
