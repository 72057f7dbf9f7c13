// Checkpoints in dm-reverb's form, written and read: compared with libprotobuf, with damage at
// every byte, and with each call of the file system failing once. tests/reverb/checkpoints_test.py
// tests them with dm-reverb.
#include "reverie/reverb_files/reverb_checkpoint.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "reverb.pb.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint_tools/reverb_conversion.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"
#include "reverie/record/table_difference.h"
#include "reverie/reverb_files/tf_records.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"
#include "tests/support/items.h"

namespace reverie::checkpoint {
namespace {

namespace proto = reverie::reverb_proto;
using reverb_files::newest_reverb_checkpoint;
using reverb_files::TfRecordWriter;
using reverie::testing::float_chunk;
using reverie::testing::item_over;
using reverie::testing::table_options;
using reverie::testing::value_of;

Result<LoadedCheckpoint> read_reverb_checkpoint(FileSystem& files, const std::string& folder) {
  LoadedCheckpoint loaded;
  REVERIE_ASSIGN_OR_RETURN(loaded.tables, reverb_files::read_reverb_checkpoint(files, folder));
  return loaded;
}

constexpr char kOurs[] = "/data/ours";
constexpr char kTheirs[] = "/data/theirs";
constexpr char kBack[] = "/data/back";
constexpr ItemKey kItems = 40;

const std::vector<std::string>& selectors() {
  static const auto* const names =
      new std::vector<std::string>{"Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap", "Prioritized"};
  return *names;
}

// A table for each selector, which is its sampler and its remover.
std::vector<TableOptions> tables() {
  std::vector<TableOptions> made;
  const std::vector<std::string>& names = selectors();
  for (std::size_t i = 0; i < names.size(); ++i) {
    TableOptions table = table_options(names[i], names[i], names[(i + 1) % names.size()], 30,
                                       RateLimiter::min_size(1));
    if (table.sampler.name == "Prioritized") table.sampler.options["priority_exponent"] = 0.6;
    if (table.remover.name == "Prioritized") table.remover.options["priority_exponent"] = 0.6;
    made.push_back(table);
  }
  made[0].signature = Signature{{{"", DType::kFloat32, {1}}}, "\"*\"", ""};
  made[0].checks_items = true;
  made[1].max_times_sampled = 1'000;
  made[2].rate_limiter = {4.0, 2, -72.0, 1'000.0};
  return made;
}

// Saves a store with items in every table. Tables share chunks, and two items have the same key.
void save(FileSystem& files, const std::string& root) {
  auto checkpointer = Checkpointer::open(root, {.files = &files}).value();
  auto store = checkpointer->open_store(tables(), {}).value();
  Ref<Chunk> chunk;
  for (ItemKey key = 1; key <= kItems; ++key) {
    if (!chunk || key % 4 == 0) {
      chunk = float_chunk(static_cast<float>(key), 4, {key == 8 ? 4 : key, key / 16, 0});
    }
    for (const TableOptions& table : tables()) {
      Item item = item_over(*chunk, key, static_cast<double>(key * 7 % 11),
                            static_cast<std::uint32_t>(key % 4), 1);
      ASSERT_EQ(insert_and_wait(*store, {table.name, {&item, 1}, TimePoint{0}}).applied, 1u);
    }
  }
  for (const TableOptions& table : tables()) {
    SampleRequest request;
    request.table = table.name;
    request.count = 20;
    request.deadline = TimePoint{0};
    (void)sample_and_wait(*store, std::move(request));
  }
  ASSERT_TRUE(checkpointer->write(*store, {}).ok());
}

// Everything about a table that both forms can express, for comparison.
std::vector<std::string> told(const RestoredTable& table) {
  const TableOptions& options = table.image.options;
  const RateLimiterSpec& limiter = options.rate_limiter;
  std::vector<std::string> lines{
      options.name,
      component_text(options.sampler),
      component_text(options.remover),
      format("{} {} {} {} {} {}", options.max_size, options.max_times_sampled,
             limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff,
             limiter.max_diff),
      format("{} {} {} {} {}", table.image.limiter.inserts, table.image.limiter.samples,
             table.image.limiter.deletes, table.image.num_deleted_episodes,
             table.image.num_unique_samples),
      options.signature ? spec_text(options.signature->columns[0]) : "no signature"};
  std::vector<std::pair<std::int64_t, std::string>> items;
  for (std::size_t slot = 0; slot < table.records.size(); ++slot) {
    const Trajectory& trajectory = table.trajectories[slot];
    if (trajectory.empty()) continue;
    const SlotRecord& record = table.records[slot];
    items.emplace_back(record.inserted_at_ns,
                       format("{} {} {} {} {}", record.key, record.priority, record.times_sampled,
                              record.inserted_at_ns, value_of(trajectory.view())));
  }
  std::ranges::stable_sort(items, {}, &std::pair<std::int64_t, std::string>::first);
  for (auto& [time, line] : items) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::vector<std::string>> told(const LoadedCheckpoint& loaded) {
  std::vector<std::vector<std::string>> all;
  for (const RestoredTable& table : loaded.tables) all.push_back(told(table));
  std::ranges::sort(all);
  return all;
}

// The records of a file, read from the format's description alone.
std::vector<std::string> records_of(const std::vector<std::byte>& file) {
  std::string plain(std::size_t{1} << 20, '\0');
  uLongf size = plain.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                       reinterpret_cast<const Bytef*>(file.data()), file.size()),
            Z_OK);
  plain.resize(size);
  std::vector<std::string> records;
  for (std::size_t at = 0; at < plain.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, plain.data() + at, 8);
    std::uint32_t crc = 0;
    std::memcpy(&crc, plain.data() + at + 12 + length, 4);
    records.push_back(plain.substr(at + 12, length));
    EXPECT_EQ(crc, std::rotr(crc32c(std::as_bytes(std::span(records.back()))), 15) + 0xa282ead8u);
    at += 16 + length;
  }
  return records;
}

template <typename Message>
std::vector<Message> messages_of(const std::vector<std::byte>& file) {
  std::vector<Message> messages;
  for (const std::string& record : records_of(file)) {
    EXPECT_TRUE(messages.emplace_back().ParseFromString(record));
  }
  return messages;
}

TEST(ReverbCheckpoint, SurvivesConversionThereAndBack) {
  sim::FileSystem files(1);
  save(files, kOurs);
  const auto there = convert_checkpoint(files, kOurs, kTheirs);
  ASSERT_TRUE(there.ok()) << there.status().to_string();
  EXPECT_EQ(there->form, CheckpointForm::kReverb);
  EXPECT_EQ(there->from, "/data/ours/checkpoint-0000000001");
  EXPECT_EQ(there->tables, 6u);
  EXPECT_EQ(there->items, 6u * 30u);
  const auto ours = told(read_checkpoint(files, there->from).value());
  EXPECT_EQ(told(read_reverb_checkpoint(files, there->to).value()), ours);

  const auto back = convert_checkpoint(files, kTheirs, kBack);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->form, CheckpointForm::kReverie);
  EXPECT_EQ(back->from, there->to);
  EXPECT_EQ(back->items, 6u * 30u);
  EXPECT_EQ(told(read_checkpoint(files, back->to).value()), ours);
}

TEST(ReverbCheckpoint, HasTheFilesAndMessagesOfTheFormat) {
  sim::FileSystem files(1);
  save(files, kOurs);
  const std::string folder = convert_checkpoint(files, kOurs, kTheirs).value().to;
  EXPECT_TRUE(folder.ends_with("+00:00")) << folder;
  const auto content = files.content(kTheirs);
  ASSERT_EQ(content.size(), 4u);
  EXPECT_TRUE(content.at(folder + "/DONE").empty());
  const auto made =
      messages_of<proto::PriorityTableCheckpoint>(content.at(folder + "/tables.tfrecord"));
  ASSERT_EQ(made.size(), 6u);
  EXPECT_EQ(made[0].table_name(), "Fifo");
  EXPECT_TRUE(made[0].sampler().fifo());
  EXPECT_TRUE(made[0].remover().lifo());
  EXPECT_EQ(made[0].signature().tensor_spec_value().dtype(), 1);
  EXPECT_EQ(made[0].max_size(), 30);
  EXPECT_EQ(made[1].max_times_sampled(), 1'000);
  EXPECT_EQ(made[2].rate_limiter().samples_per_insert(), 4.0);
  EXPECT_EQ(made[2].rate_limiter().min_size_to_sample(), 2);
  EXPECT_EQ(made[0].rate_limiter().insert_count(), 40);
  EXPECT_EQ(made[0].rate_limiter().delete_count(), 10);
  EXPECT_EQ(made[0].rate_limiter().sample_count(), 20);
  EXPECT_EQ(made[5].sampler().prioritized().priority_exponent(), 0.6);
  EXPECT_TRUE(made[3].sampler().heap().min_heap());
  std::map<ChunkKey, int> rows;
  for (const auto& chunk : messages_of<proto::ChunkData>(content.at(folder + "/chunks.tfrecord"))) {
    EXPECT_TRUE(
        rows.emplace(chunk.chunk_key(), chunk.data().tensors(0).tensor_shape().dim(0).size())
            .second);
  }
  std::string table;
  std::int64_t last_ns = 0;
  std::size_t count = 0;
  for (const auto& item :
       messages_of<proto::PrioritizedItem>(content.at(folder + "/items.tfrecord"))) {
    if (item.table() != table) last_ns = 0;
    table = item.table();
    const std::int64_t ns =
        item.inserted_at().seconds() * 1'000'000'000 + item.inserted_at().nanos();
    EXPECT_GE(ns, last_ns);
    last_ns = ns;
    const auto& slice = item.flat_trajectory().columns(0).chunk_slices(0);
    ASSERT_TRUE(rows.contains(slice.chunk_key()));
    EXPECT_LT(slice.offset(), rows[slice.chunk_key()]);
    ++count;
  }
  EXPECT_EQ(count, 6u * 30u);
}

// Items that arrived together have the same time; in the file they are in their order of arrival.
TEST(ReverbCheckpoint, KeepsTheOrderOfItemsWithEqualTimes) {
  sim::FileSystem files(1);
  {
    ManualClock clock;
    StoreOptions options;
    options.clock = &clock;
    auto checkpointer = Checkpointer::open(kOurs, {.files = &files}).value();
    const TableOptions table = table_options("t", "Uniform", "Fifo", 30, RateLimiter::min_size(1));
    auto store = checkpointer->open_store({table}, options).value();
    for (ItemKey key = 1; key <= 100; ++key) {
      Item item = reverie::testing::make_item(key, 1.0, 0, 1, {key, 0, 0});
      ASSERT_EQ(insert_and_wait(*store, {"t", {&item, 1}, TimePoint::max()}).applied, 1u);
      const std::vector<ItemKey> odd{key - 3};
      MutateRequest request;
      request.table = "t";
      request.deletes = odd;
      if (key % 5 == 0) (void)mutate_and_wait(*store, request);
    }
    ASSERT_TRUE(checkpointer->write(*store, {}).ok());
  }
  const std::string folder = convert_checkpoint(files, kOurs, kTheirs).value().to;
  const LoadedCheckpoint loaded = read_reverb_checkpoint(files, folder).value();
  ASSERT_GT(loaded.tables[0].records.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(loaded.tables[0].records, {}, &SlotRecord::key));
}

TEST(ReverbCheckpoint, IsLoadedByAStoreOpenedInItsFolder) {
  sim::FileSystem files(1);
  save(files, kOurs);
  const std::string folder = convert_checkpoint(files, kOurs, kTheirs).value().to;
  for (const bool is_fallback : {false, true}) {
    CheckpointerOptions options{.on_mismatch = OnMismatch::kTheirs, .files = &files};
    if (is_fallback) options.fallback = kTheirs;
    auto checkpointer = Checkpointer::open(is_fallback ? "/data/new" : kTheirs, options).value();
    std::string loaded;
    const auto store = checkpointer->open_store(tables(), {}, &loaded);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_EQ(loaded, folder);
    EXPECT_EQ(info_and_wait(**store).value()[0].current_size, 30);
    if (is_fallback) continue;
    // Its own checkpoint is in our form, beside dm-reverb's, and is preferred from then on.
    ASSERT_EQ(checkpointer->write(**store, {}).value().folder,
              "/data/theirs/checkpoint-0000000001");
    checkpointer.reset();
    checkpointer = Checkpointer::open(kTheirs, options).value();
    ASSERT_TRUE(checkpointer->open_store(tables(), {}, &loaded).ok());
    EXPECT_EQ(loaded, "/data/theirs/checkpoint-0000000001");
    ASSERT_TRUE(remove_checkpoint(files, kTheirs, 1).ok());
  }
}

TEST(ReverbCheckpoint, IsReadWithoutCompressionToo) {
  sim::FileSystem files(1);
  save(files, kOurs);
  const std::string folder = convert_checkpoint(files, kOurs, kTheirs).value().to;
  const auto expected = told(read_reverb_checkpoint(files, folder).value());
  ASSERT_TRUE(files.create_folder("/data/plain").ok());
  for (const auto& [path, bytes] : files.content(folder)) {
    const std::string to = "/data/plain" + path.substr(path.rfind('/'));
    const auto file = files.create(to).value();
    for (const std::string& record :
         bytes.empty() ? std::vector<std::string>() : records_of(bytes)) {
      std::vector<std::byte> head;
      ByteWriter(head).u64(record.size());
      ByteWriter(head).u32(std::rotr(crc32c(head), 15) + 0xa282ead8u);
      ByteWriter(head).raw(std::as_bytes(std::span(record)));
      ByteWriter(head).u32(std::rotr(crc32c(std::as_bytes(std::span(record))), 15) + 0xa282ead8u);
      ASSERT_TRUE(file->append(head).ok());
    }
  }
  EXPECT_EQ(told(read_reverb_checkpoint(files, "/data/plain").value()), expected);
}

TEST(ReverbCheckpoint, DamageIsNamedOrHarmless) {
  sim::FileSystem files(1);
  save(files, kOurs);
  const std::string folder = convert_checkpoint(files, kOurs, kTheirs).value().to;
  const auto expected = told(read_reverb_checkpoint(files, folder).value());
  int refused = 0;
  const auto try_it = [&](const std::string& path) {
    const auto loaded = read_reverb_checkpoint(files, folder);
    // zlib ignores some bits of its header, and those after the end of a stream in its last byte.
    if (loaded.ok()) {
      EXPECT_EQ(told(*loaded), expected);
      return;
    }
    ++refused;
    EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss) << loaded.status().to_string();
    EXPECT_NE(loaded.status().message().find(path), std::string::npos)
        << loaded.status().to_string();
  };
  int tried = 0;
  for (const auto& [path, bytes] : files.content(folder)) {
    for (std::uint64_t at = 0; at < bytes.size(); ++at) {
      const auto by = static_cast<std::byte>(1u << (at % 8));
      files.flip(path, at, by);
      try_it(path);
      files.flip(path, at, by);
      ++tried;
    }
  }
  EXPECT_GE(refused, tried - 16);
  for (const auto& [path, bytes] : files.content(folder)) {
    for (std::uint64_t size = bytes.size(); size-- > 0;) {
      files.cut(path, size);
      EXPECT_FALSE(read_reverb_checkpoint(files, folder).ok()) << path << " " << size;
      if (size % 16 == 0) size = size < 64 ? size : size - 15;
    }
    break;  // the file stays cut, so only one is tested
  }
}

TEST(ReverbCheckpoint, SurvivesAFailureOfAnyDiskCall) {
  for (const bool is_back : {false, true}) {
    std::int64_t first = 0;
    std::int64_t last = 0;
    {
      sim::FileSystem files(1);
      save(files, kOurs);
      if (is_back) (void)convert_checkpoint(files, kOurs, kTheirs).value();
      first = files.calls() + 1;
      ASSERT_TRUE(convert_checkpoint(files, is_back ? kTheirs : kOurs, kBack).ok());
      last = files.calls();
    }
    ASSERT_GT(last, first + 10);
    for (std::int64_t call = first; call <= last; ++call) {
      for (const bool goes_out : {false, true}) {
        sim::FileSystem files(1);
        save(files, kOurs);
        if (is_back) (void)convert_checkpoint(files, kOurs, kTheirs).value();
        if (goes_out) {
          files.stop_at(call);
        } else {
          files.fail_at(call, Status(StatusCode::kResourceExhausted, "the disk is full"));
        }
        const auto done = convert_checkpoint(files, is_back ? kTheirs : kOurs, kBack);
        if (goes_out) files.restart();
        // The checkpoint is complete or absent.
        const auto reverb = newest_reverb_checkpoint(files, kBack);
        const auto ours = newest_checkpoint(files, kBack);
        const bool is_there = is_back ? ours.ok() : reverb.ok() && reverb->has_value();
        EXPECT_TRUE(is_there || goes_out || !done.ok()) << call;
        if (!is_there) continue;
        const auto loaded =
            is_back ? read_checkpoint(files, *ours) : read_reverb_checkpoint(files, **reverb);
        ASSERT_TRUE(loaded.ok()) << call << ": " << loaded.status().to_string();
        EXPECT_EQ(loaded->tables.size(), 6u);
      }
    }
  }
}

TEST(ReverbCheckpoint, RefusesOptionsThatTheFormatCannotExpress) {
  const auto refusal = [](const TableOptions& table) {
    sim::FileSystem files(1);
    {
      auto checkpointer = Checkpointer::open(kOurs, {.files = &files}).value();
      auto store = checkpointer->open_store({table}, {}).value();
      EXPECT_TRUE(checkpointer->write(*store, {}).ok());
    }
    const Status status = convert_checkpoint(files, kOurs, kTheirs).status();
    EXPECT_TRUE(!files.list(kTheirs).ok() || files.list(kTheirs)->empty());
    return status;
  };
  TableOptions unkeyed = tables()[2];
  unkeyed.is_keyed = false;
  EXPECT_EQ(refusal(unkeyed).code(), StatusCode::kUnimplemented);
  EXPECT_NE(refusal(unkeyed).message().find("table 'Uniform'"), std::string::npos);
  TableOptions numbered = tables()[0];
  numbered.signature = Signature{{{"3", DType::kFloat32, {1}}}, R"({"dict": [[3, "*"]]})", ""};
  EXPECT_EQ(refusal(numbered).code(), StatusCode::kUnimplemented);

  sim::FileSystem files(1);
  save(files, kOurs);
  ASSERT_TRUE(convert_checkpoint(files, kOurs, kTheirs).ok());
  EXPECT_EQ(convert_checkpoint(files, kOurs, kTheirs).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(convert_checkpoint(files, kTheirs, kOurs).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(convert_checkpoint(files, "/nothing", kBack).status().code(), StatusCode::kNotFound);
}

TEST(ReverbCheckpoint, RefusesToConvertWhileAJournalContinues) {
  sim::FileSystem files(1);
  CheckpointerOptions options{.journal = {.durability = Durability::kSync}, .files = &files};
  {
    auto checkpointer = Checkpointer::open(kOurs, options).value();
    auto store = checkpointer->open_store(tables(), {}).value();
    ASSERT_TRUE(checkpointer->write(*store, {}).ok());
    Item item = reverie::testing::make_item(1, 1.0);
    ASSERT_EQ(insert_and_wait(*store, {"Uniform", {&item, 1}, TimePoint{0}}).applied, 1u);
  }
  const Status status = convert_checkpoint(files, kOurs, kTheirs).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("journal"), std::string::npos) << status.message();
}

// The journal continues the newest one.
TEST(ReverbCheckpoint, ConvertsAnOlderOneBesideAJournal) {
  sim::FileSystem files(1);
  CheckpointerOptions options{
      .keep = 2, .journal = {.durability = Durability::kSync}, .files = &files};
  std::string first;
  {
    auto checkpointer = Checkpointer::open(kOurs, options).value();
    auto store = checkpointer->open_store(tables(), {}).value();
    for (ItemKey key = 1; key <= 3; ++key) {
      Item item = reverie::testing::make_item(key, 1.0);
      ASSERT_EQ(insert_and_wait(*store, {"Uniform", {&item, 1}, TimePoint{0}}).applied, 1u);
      if (key == 3) break;
      const auto written = checkpointer->write(*store, {});
      ASSERT_TRUE(written.ok()) << written.status().to_string();
      if (key == 1) first = written->folder;
    }
  }
  const auto converted = convert_checkpoint(files, first, kTheirs);
  ASSERT_TRUE(converted.ok()) << converted.status().to_string();
  EXPECT_EQ(converted->items, 1u);
}

// Checkpoints with records that dm-reverb never writes.
class MadeReverbCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    table_.set_table_name("t");
    table_.mutable_sampler()->set_fifo(true);
    table_.mutable_remover()->set_fifo(true);
    table_.set_max_size(10);
    table_.mutable_rate_limiter()->set_samples_per_insert(1);
    table_.mutable_rate_limiter()->set_min_size_to_sample(1);
    table_.mutable_rate_limiter()->set_max_diff(100);
    table_.mutable_rate_limiter()->set_insert_count(1);
    const std::string bytes = wire::write_chunk(*float_chunk(5, 3, {7, 1, 0}), 0, 3, 7).value();
    ASSERT_TRUE(chunk_.ParseFromString(bytes));
    item_.set_key(3);
    item_.set_table("t");
    item_.set_priority(2);
    auto* const slice = item_.mutable_flat_trajectory()->add_columns()->add_chunk_slices();
    slice->set_chunk_key(7);
    slice->set_length(2);
  }

  Result<std::vector<RestoredTable>> read(const std::vector<proto::PriorityTableCheckpoint>& tables,
                                          const std::vector<proto::PrioritizedItem>& items,
                                          const std::vector<proto::ChunkData>& chunks) {
    sim::FileSystem files(1);
    EXPECT_TRUE(files.create_folder("/c").ok());
    write(files, "/c/tables.tfrecord", tables);
    write(files, "/c/items.tfrecord", items);
    write(files, "/c/chunks.tfrecord", chunks);
    (void)files.create("/c/DONE");
    return reverb_files::read_reverb_checkpoint(files, "/c");
  }
  template <typename Message>
  static void write(FileSystem& files, const std::string& path, const std::vector<Message>& all) {
    const auto writer = TfRecordWriter::create(files, path).value();
    for (const Message& message : all) {
      const std::string bytes = message.SerializeAsString();
      ASSERT_TRUE(writer->add(std::as_bytes(std::span(bytes))).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
  }
  void expect_refused(const Result<std::vector<RestoredTable>>& loaded, StatusCode code,
                      const std::string& says) {
    EXPECT_EQ(loaded.status().code(), code) << loaded.status().to_string();
    EXPECT_NE(loaded.status().message().find(says), std::string::npos)
        << loaded.status().to_string();
    EXPECT_NE(loaded.status().message().find("record 1 of '/c/"), std::string::npos)
        << loaded.status().to_string();
  }

  proto::PriorityTableCheckpoint table_;
  proto::PrioritizedItem item_;
  proto::ChunkData chunk_;
};

TEST_F(MadeReverbCheckpoint, IsReadAndItsErrorsAreNamed) {
  ASSERT_TRUE(read({table_}, {item_}, {chunk_}).ok());
  EXPECT_EQ(read({table_}, {item_}, {chunk_})->front().records[0].key, 3u);
  auto item = item_;
  item.set_table("u");
  expect_refused(read({table_}, {item}, {chunk_}), StatusCode::kDataLoss, "table 'u'");
  expect_refused(read({table_}, {item_}, {}), StatusCode::kDataLoss, "7");
  item = item_;
  item.mutable_flat_trajectory()->mutable_columns(0)->mutable_chunk_slices(0)->set_length(4);
  expect_refused(read({table_}, {item}, {chunk_}), StatusCode::kDataLoss, "4");
  item = item_;
  item.clear_flat_trajectory();
  expect_refused(read({table_}, {item}, {chunk_}), StatusCode::kUnimplemented, "item 3");
  item = item_;
  item.mutable_inserted_at()->set_seconds(-5);
  expect_refused(read({table_}, {item}, {chunk_}), StatusCode::kDataLoss, "1970");
  auto table = table_;
  *table.add_deprecated_items() = item_;
  expect_refused(read({table}, {}, {chunk_}), StatusCode::kUnimplemented, "dm-reverb");
  table = table_;
  table.clear_sampler();
  expect_refused(read({table}, {}, {}), StatusCode::kDataLoss, "no sampler");
  table = table_;
  table.mutable_rate_limiter()->set_sample_count(-1);
  expect_refused(read({table}, {}, {}), StatusCode::kDataLoss, "-1 samples");
  auto chunk = chunk_;
  chunk.clear_data();
  expect_refused(read({table_}, {}, {chunk}), StatusCode::kDataLoss, "");
  chunk = chunk_;
  chunk.mutable_data()->mutable_tensors(0)->set_tensor_content("not compressed");
  expect_refused(read({table_}, {item_}, {chunk}), StatusCode::kDataLoss, "chunk 7, column 0");
  EXPECT_EQ(read({table_, table_}, {}, {}).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(read({table_}, {}, {chunk_, chunk_}).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie::checkpoint
