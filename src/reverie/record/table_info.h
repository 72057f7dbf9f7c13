// A table's options and its state: the values that every protocol describes it with.
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

// What is certain once a call is confirmed: docs/durability.md.
enum class Durability {
  kNone,      // the change is in memory
  kInterval,  // its record was written; it is synced at intervals
  kSync,      // its record was synced
};

// What a table is made from.
struct TableOptions {
  std::string name;
  ComponentSpec sampler;
  ComponentSpec remover;
  std::int64_t max_size = 0;
  std::optional<std::int64_t> max_bytes;  // of its items and of their chunks, each once
  // At most so many bytes of these chunks are in memory, besides the store's own bound. It is a
  // property of the host, not of the table: checkpoints do not contain it.
  std::optional<std::int64_t> memory_bytes;
  // The durability of this table, if it differs from its store's. A property of the host,
  // too.
  std::optional<Durability> durability;
  std::int64_t max_times_sampled = 0;  // below 1: without limit
  RateLimiterSpec rate_limiter;
  std::vector<ComponentSpec> extensions;
  std::optional<Signature> signature;
  // Whether items must match the signature. If not, it only informs readers and writers.
  bool checks_items = true;
  // For a table with max_times_sampled: whether a server undoes samples that it drew for a reader
  // but had not sent when the reader disconnected.
  bool undoes_unsent = false;
  // Whether items can be found by key and episodes are counted. If not, the table needs no map from
  // keys to items, which takes 22 bytes per item: keys mean nothing, and only a ticket finds an
  // item. It accepts whole steps of many environments at once (ReplayService::insert_views).
  bool is_keyed = true;
};

struct TableInfo {
  TableOptions options;
  std::int64_t current_size = 0;
  // That of its items and of their chunks, each once; counted only if max_bytes is set.
  std::int64_t size_bytes = 0;
  std::int64_t num_episodes = 0;
  std::int64_t num_deleted_episodes = 0;
  std::int64_t num_unique_samples = 0;
  // The limiter's counts.
  std::int64_t inserts = 0;
  std::int64_t samples = 0;
  std::int64_t deletes = 0;
  // The largest priority since the table was made or, if it is keyed, reset; at least 1.
  double max_priority = 1.0;
  // Requests that wait now, and how long requests have waited in all.
  std::int64_t pending_inserts = 0;
  std::int64_t pending_samples = 0;
  double insert_wait_s = 0;
  double sample_wait_s = 0;
  // Updates by key or ticket that found no item.
  std::int64_t missing_updates = 0;
  // Items that a reader could not decode, and that were removed.
  std::int64_t corrupt_items = 0;
};

// Why requests of a table wait.
struct BlockedReport {
  struct Side {
    std::int64_t waiting = 0;     // requests
    double longest_wait_s = 0;    // of the request that waits longest
    std::string longest_request;  // what it is: "insert of 3 item(s), 1 done"
    std::string reason;           // which bound, the current value, and by how much; empty if none
  };
  Side inserts;
  Side samples;

  // A line for people.
  std::string text(const std::string& table) const;
};

}  // namespace reverie
