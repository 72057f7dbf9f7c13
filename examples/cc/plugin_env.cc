// A user's environment, in a shared library that a C++ or a Python program loads.
//
//     reverie.load_plugin("build/release/examples/plugin_env.so")
//     pool = reverie.envs.native.NativePool("Catch-v0", 64, columns=7)
//
// Catch: a ball falls through a board, one row per step; the paddle in the last row moves left,
// stays or moves right. When the ball reaches the last row the episode ends, with 1 if the paddle
// is under the ball and -1 if not.
//
//     . . O . .
//     . . . . .      the observation: the board as 0 and 1, uint8 [rows, columns]
//     . # . . .
//
// Source: Mnih et al. 2014, "Recurrent Models of Visual Attention", section 4.2; the sizes are
// those of bsuite.
#include <algorithm>
#include <cstdint>
#include <span>

#include "reverie/env/native/canvas.h"
#include "reverie/env/native_plugin.h"

namespace {

using namespace reverie;

class Catch {
 public:
  struct Config {
    std::int64_t rows = 10;
    std::int64_t columns = 5;
  };
  using Observation = std::uint8_t;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 3;

  static Result<Config> read(OptionReader& options) {
    const Config config{options.integer("rows", 10), options.integer("columns", 5)};
    if (config.rows < 2 || config.rows > 100 || config.columns < 1 || config.columns > 100) {
      return invalid_argument("the board is {} x {}; rows must be in [2, 100], columns in [1, 100]",
                              config.rows, config.columns);
    }
    return config;
  }

  static NativeSpec spec(const Config& config) {
    NativeSpec spec;
    spec.observation = {"", DType::kUInt8, {config.rows, config.columns}};
    spec.action_count = 3;
    spec.picture_width = static_cast<std::size_t>(20 * config.columns);
    spec.picture_height = static_cast<std::size_t>(20 * config.rows);
    return spec;
  }

  explicit Catch(const Config& config) : config_(config) {}

  void reset(Random& random) {
    ball_row_ = 0;
    ball_column_ =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(config_.columns)));
    paddle_ = config_.columns / 2;
  }

  NativeStep step(std::int64_t action, Random&) {
    paddle_ = std::clamp<std::int64_t>(paddle_ + action - 1, 0, config_.columns - 1);
    if (++ball_row_ < config_.rows - 1) return {};
    return {paddle_ == ball_column_ ? 1.0f : -1.0f, /*terminated=*/true};
  }

  void observe(std::span<std::uint8_t> board) const {
    std::fill(board.begin(), board.end(), std::uint8_t{0});
    board[index(ball_row_, ball_column_)] = 1;
    board[index(config_.rows - 1, paddle_)] = 1;
  }

  // The following functions are optional.
  void get_state(std::span<double> out) const {
    out[0] = static_cast<double>(ball_row_);
    out[1] = static_cast<double>(ball_column_);
    out[2] = static_cast<double>(paddle_);
  }

  void set_state(std::span<const double> state) {
    const auto within = [](double x, std::int64_t count) {
      return static_cast<std::int64_t>(std::clamp(x, 0.0, static_cast<double>(count - 1)));
    };
    ball_row_ = within(state[0], config_.rows);
    ball_column_ = within(state[1], config_.columns);
    paddle_ = within(state[2], config_.columns);
  }

  void draw(Canvas& canvas) const {
    const auto cell = [&](std::int64_t row, std::int64_t column) {
      return Point{20.0 * static_cast<double>(column) + 10,
                   20.0 * static_cast<double>(config_.rows - row) - 10};
    };
    canvas.disc(cell(ball_row_, ball_column_), 8, kRed);
    const Point paddle = cell(config_.rows - 1, paddle_);
    canvas.line({paddle.x - 9, paddle.y - 6}, {paddle.x + 9, paddle.y - 6}, 5, kBlack);
  }

 private:
  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * config_.columns + column);
  }

  Config config_;
  std::int64_t ball_row_ = 0;
  std::int64_t ball_column_ = 0;
  std::int64_t paddle_ = 0;
};

}  // namespace

REVERIE_PLUGIN(host) {
  return add_environment(host, "Catch-v0", native_factory<Catch>());
}
