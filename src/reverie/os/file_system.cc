#include "reverie/os/file_system.h"

namespace reverie {

std::string join_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

Status durable_rename(FileSystem& files, const std::string& from, const std::string& to,
                      IfThere if_there, Contents contents) {
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(from));
  if (kind == PathKind::kFolder) {
    if (contents == Contents::kToBeSynced) {
      REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(from));
      for (const std::string& name : names) {
        REVERIE_RETURN_IF_ERROR(files.sync_file(join_path(from, name)));
      }
    }
    REVERIE_RETURN_IF_ERROR(files.sync_folder(from));
  } else {
    REVERIE_RETURN_IF_ERROR(files.sync_file(from));
  }
  REVERIE_RETURN_IF_ERROR(files.rename(from, to, if_there));
  return files.sync_folder(parent_path(to));
}

Status create_folders(FileSystem& files, const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind == PathKind::kFolder) {
    // A process that was killed may have created it without the sync. Where that is not allowed, it
    // is someone else's folder.
    (void)files.sync_folder(parent_path(path));
    return {};
  }
  if (kind != PathKind::kNothing) {
    return invalid_argument("'{}' is a file, and a folder is wanted; give another path", path);
  }
  const std::string parent = parent_path(path);
  if (parent != path) REVERIE_RETURN_IF_ERROR(create_folders(files, parent));
  Status made = files.create_folder(path);
  // Another process may have been faster.
  if (!made.ok() && made.code() != StatusCode::kAlreadyExists) return made;
  return files.sync_folder(parent);
}

}  // namespace reverie
