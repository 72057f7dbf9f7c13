#include "tests/conformance/file_system_suite.h"

#include <cstdlib>
#include <filesystem>

#include "reverie/sim/file_system.h"

namespace reverie {
namespace {

FileSystemCase open_posix() {
  std::string folder = ::testing::TempDir() + "file_system_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  return {&FileSystem::system(),
          std::shared_ptr<void>(nullptr,
                                [folder](void*) {
                                  std::error_code ignored;
                                  std::filesystem::remove_all(folder, ignored);
                                }),
          folder};
}

FileSystemCase open_sim() {
  auto files = std::make_shared<sim::FileSystem>(7);
  EXPECT_TRUE(files->create_folder("/data").ok());
  return {files.get(), files, "/data"};
}

INSTANTIATE_TEST_SUITE_P(Posix, FileSystemSuite, ::testing::Values(&open_posix));
INSTANTIATE_TEST_SUITE_P(Sim, FileSystemSuite, ::testing::Values(&open_sim));

}  // namespace
}  // namespace reverie
