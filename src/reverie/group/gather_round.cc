// Tested in reduce_round_test.cc.
#include "reverie/group/gather_round.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/group/fields.h"
#include "reverie/group/membership.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/reduce/topology.h"

namespace reverie {
namespace {

// The same value with one piece of bulk, as received values have.
Payload joined(Payload value) {
  if (value.bulk.size() <= 1) return value;
  const auto bytes = std::make_shared<std::vector<std::byte>>(value.bulk_bytes());
  std::size_t at = 0;
  for (const BulkPiece& piece : value.bulk) {
    at = Payload::padded(at);
    std::copy(piece.bytes.begin(), piece.bytes.end(),
              bytes->begin() + static_cast<std::ptrdiff_t>(at));
    at += piece.bytes.size();
  }
  value.bulk.assign(1, BulkPiece{*bytes, bytes});
  return value;
}

// [ (member, head, sizes of the bulk) ... ], and the bulk of all, concatenated.
void write_values(const std::map<std::size_t, Payload>& values, RoundPart& part) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kList, values.size());
  for (const auto& [member, value] : values) {
    writer.begin(ValueKind::kTuple, 3);
    write_number(writer, member);
    writer.bytes(value.head);
    write_number(writer, value.bulk_bytes());
    for (const BulkPiece& piece : value.bulk) part.bulk.push_back(piece);
  }
  part.head = std::move(payload.head);
}

// Values whose bulk views the payload's.
Status read_values(const Payload& payload, std::size_t member_count,
                   std::map<std::size_t, Payload>& values) {
  FieldReader fields(payload);
  const BulkPiece bulk = payload.bulk.empty() ? BulkPiece{} : payload.bulk.front();
  std::size_t offset = 0;
  REVERIE_ASSIGN_OR_RETURN(const std::size_t count, fields.list(member_count));
  for (std::size_t i = 0; i < count; ++i) {
    REVERIE_RETURN_IF_ERROR(fields.begin(3));
    REVERIE_ASSIGN_OR_RETURN(const std::size_t member, fields.size(member_count - 1));
    REVERIE_ASSIGN_OR_RETURN(const auto head, fields.bytes());
    REVERIE_ASSIGN_OR_RETURN(const std::size_t size, fields.size(bulk.bytes.size()));
    Payload value;
    value.head.assign(head.begin(), head.end());
    if (size > 0) {
      offset = Payload::padded(offset);
      if (offset > bulk.bytes.size() || size > bulk.bytes.size() - offset) {
        return data_loss("a gathered value has {} bytes at {} of {}", size, offset,
                         bulk.bytes.size());
      }
      value.bulk.push_back({bulk.bytes.subspan(offset, size), bulk.keep});
      offset += size;
    }
    if (!values.emplace(member, std::move(value)).second) {
      return data_loss("the value of member {} was gathered twice", member);
    }
  }
  return fields.end();
}

}  // namespace

GatherRound::GatherRound(std::string what, std::optional<Payload> mine, std::size_t tree,
                         std::size_t member, std::size_t member_count)
    : what_(std::move(what)),
      hash_(text_hash(what_)),
      tree_(tree),
      member_(member),
      member_count_(member_count) {
  if (mine) values_.emplace(member_, joined(std::move(*mine)));
}

void GatherRound::start(std::vector<RoundPart>& out) {
  if (place_in_tree(member_, tree_, member_count_).child_count == 0) go_up(out);
}

Status GatherRound::take(std::size_t from, bool is_up, std::size_t part, Payload payload,
                         std::vector<RoundPart>& out) {
  if (part != 0) return data_loss("part {} of a gathering was sent, which has one", part);
  const TreePlace place = place_in_tree(member_, tree_, member_count_);
  if (!is_up) {
    if (place.parent != from || !has_sent_up_ || has_all_) {
      return data_loss("values came down from a member that is not the parent");
    }
    std::map<std::size_t, Payload> values;
    REVERIE_RETURN_IF_ERROR(read_values(payload, member_count_, values));
    values_ = std::move(values);
    go_down(out);
    return {};
  }
  const auto children = place.children();
  const auto child = static_cast<std::size_t>(std::find(children.begin(), children.end(), from) -
                                              children.begin());
  if (child == children.size() || has_come_[child]) {
    return data_loss("values came up from a member that is not a child, or twice");
  }
  std::map<std::size_t, Payload> values = values_;
  REVERIE_RETURN_IF_ERROR(read_values(payload, member_count_, values));
  values_ = std::move(values);
  has_come_[child] = true;
  const auto come = static_cast<std::size_t>(std::count(has_come_.begin(), has_come_.end(), true));
  if (come == children.size()) go_up(out);
  return {};
}

void GatherRound::go_up(std::vector<RoundPart>& out) {
  has_sent_up_ = true;
  const TreePlace place = place_in_tree(member_, tree_, member_count_);
  if (!place.parent) return go_down(out);
  RoundPart& part = out.emplace_back();
  part.to = *place.parent;
  part.is_up = true;
  write_values(values_, part);
}

void GatherRound::go_down(std::vector<RoundPart>& out) {
  has_all_ = true;
  const TreePlace place = place_in_tree(member_, tree_, member_count_);
  if (place.child_count == 0) return;
  RoundPart part;
  write_values(values_, part);
  std::size_t size = 0;
  for (const BulkPiece& piece : part.bulk) size += piece.bytes.size();
  part.must_arrive = size > kCopiedResultMax;
  if (!part.must_arrive) {
    for (BulkPiece& piece : part.bulk) piece = kept_copy(piece.bytes);
  }
  for (const std::size_t child : place.children()) {
    if (part.must_arrive) ++in_flight_;
    part.to = child;
    out.push_back(part);
  }
}

}  // namespace reverie
