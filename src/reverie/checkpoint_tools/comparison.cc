// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_command_test.py.
#include "reverie/checkpoint_tools/comparison.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint_tools/inspection.h"

namespace reverie::checkpoint {
namespace {

// An item, and the number by which that of another checkpoint is the same one.
struct Numbered {
  std::uint64_t number;
  const SlotRecord* record;
  std::uint64_t contents;
};

std::vector<Numbered> numbered_items(const ItemList& list, bool by_key) {
  std::vector<Numbered> items;
  for (std::size_t slot = 0; slot < list.records.size(); ++slot) {
    if (list.contents[slot] == 0) continue;
    const SlotRecord& record = list.records[slot];
    items.push_back({by_key ? record.key : slot, &record, list.contents[slot]});
  }
  std::ranges::sort(items, {}, &Numbered::number);
  return items;
}

class Comparison {
 public:
  Comparison(const ItemList& one, const ItemList& other, std::vector<Difference>& out)
      : one_(one), other_(other), out_(out) {}

  void compare() {
    compare_options();
    compare_items();
  }

 private:
  // Items that differ in one way: how many, and the first.
  struct Found {
    std::uint64_t count = 0;
    std::uint64_t number = 0;
    std::string one;
    std::string other;
  };

  void note(std::string what, std::string one, std::string other) {
    if (one == other) return;
    out_.push_back({one_.image.options.name, std::move(what), std::move(one), std::move(other)});
  }

  void compare_options() {
    const auto ones = described(one_.image);
    const auto others = described(other_.image);
    for (std::size_t i = 0; i < ones.size(); ++i)
      note(ones[i].first, ones[i].second, others[i].second);
    const TableOptions& one = one_.image.options;
    const TableOptions& other = other_.image.options;
    note("checks_items", format("{}", one.checks_items), format("{}", other.checks_items));
    note("undoes_unsent", format("{}", one.undoes_unsent), format("{}", other.undoes_unsent));
    note("is_keyed", format("{}", one.is_keyed), format("{}", other.is_keyed));
  }

  void compare_items() {
    const bool by_key = one_.image.has_records && other_.image.has_records;
    const std::vector<Numbered> ones = numbered_items(one_, by_key);
    const std::vector<Numbered> others = numbered_items(other_, by_key);
    std::uint64_t only_one = 0;
    std::uint64_t only_other = 0;
    std::map<std::string, Found> found;
    const auto differ = [&found](const char* what, const Numbered& item, std::string one,
                                 std::string other) {
      if (one == other) return;
      Found& so_far = found[what];
      if (so_far.count++ == 0) {
        so_far = {1, item.number, std::move(one), std::move(other)};
      }
    };
    auto a = ones.begin();
    auto b = others.begin();
    while (a != ones.end() || b != others.end()) {
      if (b == others.end() || (a != ones.end() && a->number < b->number)) {
        ++only_one;
        ++a;
      } else if (a == ones.end() || b->number < a->number) {
        ++only_other;
        ++b;
      } else {
        differ("priority", *a, format("{}", a->record->priority),
               format("{}", b->record->priority));
        differ("times_sampled", *a, format("{}", a->record->times_sampled),
               format("{}", b->record->times_sampled));
        differ("rows", *a, format("of hash {:016x}", a->contents),
               format("of hash {:016x}", b->contents));
        ++a;
        ++b;
      }
    }
    if (only_one + only_other > 0) {
      out_.push_back({one_.image.options.name,
                      by_key ? "keys that the other lacks" : "slots that the other lacks",
                      format("{}", only_one), format("{}", only_other)});
    }
    for (const auto& [what, first] : found) {
      note(format("{} of {} {}{}", what, by_key ? "key" : "slot", first.number,
                  first.count > 1 ? format(" and of {} more", first.count - 1) : ""),
           first.one, first.other);
    }
  }

  const ItemList& one_;
  const ItemList& other_;
  std::vector<Difference>& out_;
};

}  // namespace

Result<std::vector<Difference>> compare_checkpoints(FileSystem& files, const std::string& one,
                                                    const std::string& other) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<ItemList> ones, read_items(files, one));
  REVERIE_ASSIGN_OR_RETURN(const std::vector<ItemList> others, read_items(files, other));
  std::map<std::string, std::pair<const ItemList*, const ItemList*>> tables;
  for (const ItemList& list : ones) tables[list.image.options.name].first = &list;
  for (const ItemList& list : others) tables[list.image.options.name].second = &list;
  std::vector<Difference> found;
  for (const auto& [name, lists] : tables) {
    if (lists.first == nullptr || lists.second == nullptr) {
      found.push_back({name, "", lists.first != nullptr ? "there" : "",
                       lists.second != nullptr ? "there" : ""});
      continue;
    }
    Comparison(*lists.first, *lists.second, found).compare();
  }
  return found;
}

}  // namespace reverie::checkpoint
