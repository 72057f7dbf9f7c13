// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/folder.h"

#include <algorithm>

#include "reverie/durable_files/section_file.h"

namespace reverie::checkpoint {
namespace {

constexpr std::string_view kCheckpoint = "checkpoint-";
constexpr std::string_view kTemporary = "tmp-";
constexpr std::string_view kChunks = "chunks-";

// The files of a folder, if all of them belong to checkpoints.
Result<std::optional<std::vector<std::string>>> our_files(FileSystem& files,
                                                          const std::string& folder) {
  REVERIE_ASSIGN_OR_RETURN(std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) {
    if (name == kManifestName || name == kTablesName || chunks_number(name)) continue;
    return std::optional<std::vector<std::string>>();
  }
  return std::optional(std::move(names));
}

Status remove_temporary(FileSystem& files, const std::string& folder) {
  REVERIE_ASSIGN_OR_RETURN(const auto names, our_files(files, folder));
  if (!names) return {};
  for (const std::string& name : *names) {
    REVERIE_RETURN_IF_ERROR(files.remove_file(join_path(folder, name)));
  }
  return files.remove_folder(folder);
}

}  // namespace

std::string checkpoint_name(std::uint64_t number) {
  return numbered(kCheckpoint, number);
}
std::string temporary_name(std::uint64_t number) {
  return numbered(kTemporary, number);
}
std::string chunks_name(std::uint64_t number) {
  return numbered(kChunks, number);
}
std::optional<std::uint64_t> checkpoint_number(std::string_view name) {
  return number_of(kCheckpoint, name);
}
std::optional<std::uint64_t> chunks_number(std::string_view name) {
  return number_of(kChunks, name);
}

Result<std::vector<std::uint64_t>> checkpoints(FileSystem& files, const std::string& root) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(root));
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = checkpoint_number(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<Place> place_of(FileSystem& files, const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind != PathKind::kFolder && kind != PathKind::kNothing) {
    return invalid_argument(
        "'{}' is a file; give a folder of checkpoints, or one of them: a folder that holds a {}",
        path, kManifestName);
  }
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  const std::size_t slash = plain.rfind('/');
  const std::string name = slash == std::string::npos ? plain : plain.substr(slash + 1);
  if (const auto number = checkpoint_number(name)) {
    if (kind == PathKind::kNothing) {
      return not_found("checkpoint '{}' does not exist; give the path of an existing one", path);
    }
    return Place{parent_path(plain), *number};
  }
  return Place{plain, std::nullopt};
}

Result<std::string> newest_checkpoint(FileSystem& files, const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(const Place place, place_of(files, path));
  if (place.number) return join_path(place.root, checkpoint_name(*place.number));
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(place.root));
  if (kind == PathKind::kFolder) {
    REVERIE_ASSIGN_OR_RETURN(const auto numbers, checkpoints(files, place.root));
    if (!numbers.empty()) return join_path(place.root, checkpoint_name(numbers.back()));
  }
  return not_found(
      "'{}' holds no checkpoint; give a folder that one was saved in, or the path of one", path);
}

Status remove_checkpoint(FileSystem& files, const std::string& root, std::uint64_t number) {
  const std::string folder = join_path(root, checkpoint_name(number));
  REVERIE_ASSIGN_OR_RETURN(const auto names, our_files(files, folder));
  if (!names) return {};
  // So that a folder with this name is never incomplete.
  const std::string temporary = join_path(root, temporary_name(number));
  REVERIE_RETURN_IF_ERROR(
      durable_rename(files, folder, temporary, IfThere::kRefuse, Contents::kSynced));
  return remove_temporary(files, temporary);
}

Status remove_temporaries(FileSystem& files, const std::string& root) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(root));
  for (const std::string& name : names) {
    if (!number_of(kTemporary, name)) continue;
    const std::string folder = join_path(root, name);
    REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(folder));
    if (kind == PathKind::kFolder) REVERIE_RETURN_IF_ERROR(remove_temporary(files, folder));
  }
  return {};
}

}  // namespace reverie::checkpoint
