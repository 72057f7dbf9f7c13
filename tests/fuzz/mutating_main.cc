// A main() for a fuzz target, for builds without libFuzzer: it tries every input of a corpus, then
// a fixed number of mutated inputs. The fuzz preset searches better, since it sees which branches
// an input takes. This program tests the library as users get it, in seconds.
//
//     [ ... no access ... | readable: ......... input ][ no access ... ]
//
// An input ends where readable memory ends, so reading one byte too many crashes in any build. An
// input that crashes, takes a minute or allocates 4 GB is saved in the scratch folder.
//
// Usage: x_fuzz RUNS SCRATCH_FOLDER CORPUS_FOLDER
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "reverie/base/check.h"
#include "reverie/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Defined in sanitizer builds, where faults end the process without a signal.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());  // NOLINT

namespace reverie {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kSizeBytesMax = std::size_t{64} << 10;
constexpr unsigned kInputSecondsMax = 60;  // normal inputs take micro- or milliseconds
constexpr rlim_t kMemoryBytesMax = rlim_t{4} << 30;

// What a signal handler needs: the input under test, and where to save it.
std::span<const std::uint8_t> current_input;
std::string artifact_path;

void save_input() {
  const int file = open(artifact_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  constexpr std::string_view kSaid = "\nthe input is saved in ";
  (void)!write(file, current_input.data(), current_input.size());
  (void)!write(STDERR_FILENO, kSaid.data(), kSaid.size());
  (void)!write(STDERR_FILENO, artifact_path.data(), artifact_path.size());
  (void)!write(STDERR_FILENO, "\n", 1);
  close(file);
}

void save_and_die(int signal) {
  save_input();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void catch_faults() {
  for (const int signal : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    std::signal(signal, save_and_die);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_input);
    return;  // the sanitizer's shadow memory exceeds any limit
  }
  const rlimit memory{kMemoryBytesMax, kMemoryBytesMax};
  REVERIE_CHECK(setrlimit(RLIMIT_AS, &memory) == 0);
}

// Memory that is followed by an inaccessible page.
class GuardedMemory {
 public:
  GuardedMemory() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const all = mmap(nullptr, kSizeBytesMax + page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REVERIE_CHECK(all != MAP_FAILED);
    end_ = static_cast<std::uint8_t*>(all) + kSizeBytesMax;
    REVERIE_CHECK(mprotect(end_, page, PROT_NONE) == 0);
  }
  // Copies `bytes` to the end of the memory. Valid until the next call.
  std::span<const std::uint8_t> hold(const Bytes& bytes) {
    return {std::copy(bytes.begin(), bytes.end(), end_ - bytes.size()) - bytes.size(),
            bytes.size()};
  }

 private:
  std::uint8_t* end_;
};

// Makes one change to `bytes`, as a faulty or hostile peer might.
void mutate(Bytes& bytes, const std::vector<Bytes>& corpus, Random& random) {
  const auto offset = [&] { return static_cast<std::ptrdiff_t>(random.below(bytes.size() + 1)); };
  const auto length = [&](std::ptrdiff_t from, std::uint64_t most) {
    const auto left = static_cast<std::uint64_t>(std::ssize(bytes) - from);
    return static_cast<std::ptrdiff_t>(random.below(std::min(left, most) + 1));
  };
  const std::ptrdiff_t at = offset();
  const auto index = static_cast<std::size_t>(at);
  const bool is_inside = index < bytes.size();
  switch (random.below(8)) {
    case 0:  // flip a bit
      if (is_inside) bytes[index] ^= static_cast<std::uint8_t>(1u << random.below(8));
      break;
    case 1:  // replace a byte
      if (is_inside) bytes[index] = static_cast<std::uint8_t>(random.next());
      break;
    case 2: {  // write a number at a bound of its type
      constexpr std::array<std::uint64_t, 8> kBounds = {
          0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffffffffffff};
      const std::uint64_t bound = kBounds[random.below(kBounds.size())];
      std::copy_n(reinterpret_cast<const std::uint8_t*>(&bound), length(at, sizeof bound),
                  bytes.begin() + at);
      break;
    }
    case 3:  // insert bytes
      bytes.insert(bytes.begin() + at, 1 + random.below(16),
                   static_cast<std::uint8_t>(random.next()));
      break;
    case 4:  // remove bytes
      bytes.erase(bytes.begin() + at, bytes.begin() + at + length(at, 16));
      break;
    case 5:  // remove the end
      bytes.erase(bytes.begin() + at, bytes.end());
      break;
    case 6: {  // repeat a part
      const Bytes part(bytes.begin() + at, bytes.begin() + at + length(at, 256));
      bytes.insert(bytes.begin() + offset(), part.begin(), part.end());
      break;
    }
    default: {  // take the end of another input
      const Bytes& other = corpus[random.below(corpus.size())];
      bytes.erase(bytes.begin() + at, bytes.end());
      const auto from = static_cast<std::ptrdiff_t>(random.below(other.size() + 1));
      bytes.insert(bytes.end(), other.begin() + from, other.end());
    }
  }
  if (bytes.size() > kSizeBytesMax) bytes.resize(kSizeBytesMax);
}

// Sorted by name, so that every machine tries the same inputs.
std::vector<Bytes> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    REVERIE_CHECK(corpus.back().size() <= kSizeBytesMax);
  }
  return corpus;
}

void try_input(const Bytes& bytes, GuardedMemory& memory) {
  current_input = memory.hold(bytes);
  alarm(kInputSecondsMax);
  LLVMFuzzerTestOneInput(current_input.data(), current_input.size());
}

}  // namespace
}  // namespace reverie

int main(int argc, char** argv) {
  using namespace reverie;
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s RUNS SCRATCH_FOLDER CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  const std::uint64_t runs = std::strtoull(argv[1], nullptr, 10);
  artifact_path = std::string(argv[2]) + "/found";
  const std::vector<Bytes> corpus = read_corpus(argv[3]);
  REVERIE_CHECK(!corpus.empty());
  catch_faults();

  GuardedMemory memory;
  for (const Bytes& bytes : corpus) try_input(bytes, memory);
  for (std::uint64_t run = 0; run < runs; ++run) {
    Random random(mix64(kSeed) + run);
    Bytes bytes = corpus[random.below(corpus.size())];
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      mutate(bytes, corpus, random);
    }
    try_input(bytes, memory);
  }
  std::printf("tried %zu inputs and %llu mutations of them, seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(kSeed));
  return 0;
}
