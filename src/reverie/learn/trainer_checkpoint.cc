// Saves a training to a checkpoint, and resumes it from one.
//
// Tested in tests/integration/training_test.cc.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reverie/base/format.h"
#include "reverie/base/waiting.h"
#include "reverie/codec/byte_arrays.h"
#include "reverie/learn/trainer.h"
#include "reverie/transitions/replay_state.h"

namespace reverie {
namespace {

// The first text in the payload of a training's checkpoint.
constexpr std::string_view kStateKind = "reverie training, 1";

using NamedTexts = std::map<std::string, std::string>;

NamedTexts texts_of(const TrainSettings& settings) {
  NamedTexts texts;
  for (const auto& [name, value] : write_settings(settings)) {
    texts[name] = std::visit([](const auto& field) { return format("{}", field); }, value);
  }
  return texts;
}

void write_identity(const std::string& identity, const TrainSettings& settings, ByteWriter& out) {
  out.text(kStateKind).text(identity);
  const NamedTexts texts = texts_of(settings);
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const auto& [name, text] : texts) out.text(name).text(text);
}

std::string names_of(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

// The settings that were saved. Refuses a checkpoint of another algorithm or environment.
Result<NamedTexts> read_identity(const std::string& identity, ByteReader& in) {
  if (const std::string kind = in.text(); kind != kStateKind) {
    return invalid_argument(
        "it is no checkpoint of a training, or one of another version; give a folder that a "
        "training has saved");
  }
  const std::string given = in.text();
  NamedTexts theirs;
  const std::size_t count = in.count32(8);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    std::string name = in.text();
    theirs[std::move(name)] = in.text();
  }
  if (!in.ok()) return data_loss("the settings of the checkpoint are cut short");
  if (given != identity) {
    return invalid_argument("the checkpoint is of {}; this training is of {}", given, identity);
  }
  return theirs;
}

// Refuses a checkpoint of another training with the first difference. `tables` are its.
Status check_identity(const std::string& identity, const TrainSettings& settings,
                      std::span<const RestoredTable> tables, ByteReader& in) {
  REVERIE_ASSIGN_OR_RETURN(NamedTexts theirs, read_identity(identity, in));
  NamedTexts ours = texts_of(settings);
  // A checkpoint from before a setting existed has its default.
  for (const auto& [name, text] : texts_of(TrainSettings())) theirs.try_emplace(name, text);
  // Its tables were chosen by the version that wrote it, perhaps otherwise than this one would.
  theirs["replay_shards"] = format("{}", tables.size());
  ours["replay_shards"] = format("{}", replay_shard_count(settings));
  const auto refuse = [](const std::string& name, const std::string& there,
                         const std::string& here) {
    return invalid_argument(
        "the checkpoint was made with {} {}, and this training has {}; resume it with its own; "
        "only "
        "these may differ: {}",
        name, there, here, names_of(settings_free_at_resume()));
  };
  const auto is_free = [](const std::string& name) {
    const std::span<const std::string_view> free = settings_free_at_resume();
    return std::ranges::find(free, name) != free.end();
  };
  for (const auto& [name, text] : ours) {
    if (is_free(name)) continue;
    const auto there = theirs.find(name);
    if (there == theirs.end()) return refuse(name, "left out", text);
    if (there->second != text) return refuse(name, there->second, text);
  }
  for (const auto& [name, text] : theirs) {
    if (!ours.contains(name) && !is_free(name)) return refuse(name, text, "none");
  }
  return {};
}

// A part of the state, which is checked separately.
template <typename Save>
Status write_part(ByteWriter& out, Save&& save) {
  std::vector<std::byte> bytes;
  ByteWriter part(bytes);
  REVERIE_RETURN_IF_ERROR(save(part));
  write_array<std::byte>(bytes, out);
  return {};
}

ByteReader read_part(ByteReader& in) {
  return ByteReader(in.raw(in.u64()));
}

}  // namespace

Result<std::string> Trainer::save(checkpoint::Checkpointer& to,
                                  const std::function<bool()>& interrupted) {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("trainer"));
  if (!store_) return unimplemented("this training's store is not its own, and cannot be saved");
  MutexLock saving(save_mutex_);
  bool is_running = false;
  {
    MutexLock lock(mutex_);
    is_running = is_started_ && running_ > 0;
  }
  if (!is_running) return write(to);
  bool is_stopped = !gate_->pause();
  while (!is_stopped && !gate_->wait_for_rest(clock_.now() + kInterruptInterval)) {
    if (!interrupted || !interrupted()) continue;
    gate_->go_on();
    return cancelled("the checkpoint was interrupted before it was begun");
  }
  is_stopped = is_stopped || gate_->is_stopped();
  // A stopped training ends within one step of each thread.
  if (is_stopped) wait(TimePoint::max());
  Result<std::string> folder = write(to);
  gate_->go_on();
  return folder;
}

Result<std::string> Trainer::write(checkpoint::Checkpointer& to) {
  // The gate's pause does not reach actors of other processes: what they report waits here.
  MutexLock lock(outside_mutex_);
  std::vector<std::byte> state;
  ByteWriter out(state);
  REVERIE_RETURN_IF_ERROR(write_state(out));
  std::string folder;
  REVERIE_RETURN_IF_ERROR(write_replay_state(loops_.buffers(), state, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(checkpoint::Written written, to.write(*store_, state));
    folder = std::move(written.folder);
    return {};
  }));
  return folder;
}

Status Trainer::write_state(ByteWriter& out) {
  write_identity(identity_, settings_, out);
  REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) { return agent_->save(part); }));
  REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) -> Status {
    const TrainProgress now = progress();
    part.u64(now.steps).u64(now.batches).f64(now.elapsed_s).f64(now.loss);
    MutexLock lock(evaluation_mutex_);
    part.u64(evaluated_).f64(best_mean_);
    write_array<Evaluation>(evaluations_, part);
    write_array<float>(best_.span(), part);
    return {};
  }));
  REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) -> Status {
    server_->save(part);
    return {};
  }));
  REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) -> Status {
    log_.save(part);
    return {};
  }));
  for (const auto& actor : loops_.actors) {
    REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) { return actor->save(part); }));
  }
  for (const auto& learner : loops_.learners) {
    REVERIE_RETURN_IF_ERROR(write_part(out, [&](ByteWriter& part) -> Status {
      learner->save(part);
      return {};
    }));
  }
  return {};
}

Status Trainer::read_run(ByteReader in) {
  const std::uint64_t steps = in.u64();
  const std::uint64_t batches = in.u64();
  elapsed_before_s_ = in.f64();
  loss_ = in.f64();
  MutexLock lock(evaluation_mutex_);
  const std::uint64_t interval = settings_.evaluation_interval;
  // The saved training's interval may have been shorter.
  evaluated_ = std::min(in.u64(), interval == 0 ? 0 : steps / interval);
  evaluation_begun_ = evaluated_;
  best_mean_ = in.f64();
  evaluations_ = read_array<Evaluation>(in);
  const std::vector<float> best = read_array<float>(in);
  REVERIE_RETURN_IF_ERROR(check_done(in, "the run"));
  if (!evaluations_.empty()) {
    best_ = agent_->weights().networks[0]->copy();
    if (best.size() != best_.float_count()) {
      return data_loss("the best policy has {} numbers, not {}", best.size(), best_.float_count());
    }
    std::ranges::copy(best, best_.data());
  }
  gate_->restore(steps, batches);
  return {};
}

Status Trainer::restore_agent(TrainerParts& parts) {
  ByteReader in(parts.resume->manifest.payload);
  REVERIE_RETURN_IF_ERROR(check_identity(parts.identity, parts.settings, parts.resume->tables, in));
  ByteReader agent = read_part(in);
  return parts.agent->load(agent);
}

Status Trainer::load_policy(std::span<const std::byte> state) {
  ByteReader in(state);
  REVERIE_RETURN_IF_ERROR(read_identity(identity_, in).status());
  ByteReader agent = read_part(in);
  REVERIE_RETURN_IF_ERROR(agent_->load(agent));
  return read_run(read_part(in));
}

Status Trainer::restore(checkpoint::LoadedCheckpoint& from) {
  ByteReader in(from.manifest.payload);
  REVERIE_RETURN_IF_ERROR(check_identity(identity_, settings_, from.tables, in));
  (void)read_part(in);  // the agent, which has it
  REVERIE_RETURN_IF_ERROR(read_run(read_part(in)));
  ByteReader server = read_part(in);
  REVERIE_RETURN_IF_ERROR(server_->load(server));
  ByteReader log = read_part(in);
  REVERIE_RETURN_IF_ERROR(log_.load(log));
  for (const auto& actor : loops_.actors) {
    ByteReader part = read_part(in);
    REVERIE_RETURN_IF_ERROR(actor->load(part));
  }
  for (const auto& learner : loops_.learners) {
    ByteReader part = read_part(in);
    REVERIE_RETURN_IF_ERROR(learner->load(part));
  }
  REVERIE_ASSIGN_OR_RETURN(const ReplayPlan plan, read_replay_plan(in));
  // Those of actors in other processes, although none may be served now: their steps are kept.
  loops_.add_replays(saved_buffer_count(in, plan.options), *settings_.seed);
  const std::vector<ReplayBuffer*> buffers = loops_.buffers();
  if (plan != ReplayPlan::of(buffers.front()->plan())) {
    return data_loss("the replay of the checkpoint is of another shape than its settings say");
  }
  std::vector<std::span<Trajectory>> items;
  for (auto& table : from.tables) items.emplace_back(table.trajectories);
  REVERIE_RETURN_IF_ERROR(restore_replay(buffers, in, items));
  return checkpoint::restore(*store_, from, checkpoint::OnMismatch::kRefuse);
}

}  // namespace reverie
