// LunarLander-v3: a lander with three engines over a landing pad.
//
//            ____
//           /    \         lander: 6 corners, falls under gravity
//          |______|        legs: on a joint each, pressed outwards by a weak motor
//          /      \        ground: 10 edges of random height, level at the pad
//     __/\_|______|_/\__
//
// One file, since body, forces and picture share the measures of one craft.
//
// Tested in tests/python/native_lunar_lander_test.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include <box2d/box2d.h>

#include "reverie/env/native/box2d.h"
#include "reverie/env/native/canvas.h"
#include "reverie/env/native_env.h"

namespace reverie {
namespace {

// Lengths of parts are given in pixels of the picture; a metre of the physics is kScale pixels.
constexpr double kScale = 30;
constexpr double kFramesPerS = 50;
constexpr double kWidth = 600 / kScale;
constexpr double kHeight = 400 / kScale;
constexpr double kPadHeight = kHeight / 4;

constexpr double kMainEnginePower = 13;
constexpr double kSideEnginePower = 0.6;
constexpr double kInitialForceMax = 1000;
constexpr double kMainEngineDown = 4 / kScale;
constexpr double kSideEngineAway = 12 / kScale;
constexpr double kSideEngineUp = 14 / kScale;
constexpr double kSideEngineUpX = 17 / kScale;  // an error of the original, which flights depend on

constexpr double kLegAway = 20 / kScale;
constexpr double kLegDown = 18 / kScale;
constexpr double kLegHalfWidth = 2 / kScale;
constexpr double kLegHalfHeight = 8 / kScale;
constexpr double kLegSpringTorque = 40;

constexpr std::size_t kChunks = 11;
using Heights = std::array<double, kChunks + 1>;
constexpr std::size_t kBodies = 3;  // the lander, then its left and right leg

constexpr std::array<Point, 6> kHull = {
    {{-14, 17}, {-17, 0}, {-17, -10}, {17, -10}, {17, 0}, {14, 17}}};

float f(double x) {
  return static_cast<float>(x);
}

b2Vec2 vec(double x, double y) {
  return {f(x), f(y)};
}

// The world of one episode. It must not move, since bodies and the listener point into it.
class Flight final : public b2ContactListener {
 public:
  Flight(double gravity, const Heights& heights) : world_(vec(0, gravity)) {
    world_.SetContactListener(this);
    build_ground(heights);
    build_lander();
    for (const int side : {-1, 1}) build_leg(side);
  }

  b2Body& lander() { return *bodies_[0]; }
  const b2Body& lander() const { return *bodies_[0]; }
  b2Body& body(std::size_t i) { return *bodies_[i]; }
  const b2Body& body(std::size_t i) const { return *bodies_[i]; }
  bool touches(std::size_t leg) const { return touches_[leg]; }
  void set_touches(std::size_t leg, bool touches) { touches_[leg] = touches; }
  bool has_crashed() const { return has_crashed_; }

  void step() { world_.Step(f(1 / kFramesPerS), 6 * 30, 2 * 30); }

  // Height of the ground between chunks.
  static double ground(const Heights& heights, std::size_t chunk) {
    const double before = heights[(chunk + kChunks) % (kChunks + 1)];  // the last before the first
    return 0.33 * (before + heights[chunk] + heights[chunk + 1]);
  }
  static double ground_x(std::size_t chunk) {
    return kWidth / (kChunks - 1) * static_cast<double>(chunk);
  }

 private:
  void BeginContact(b2Contact* contact) override {
    const b2Body* const a = contact->GetFixtureA()->GetBody();
    const b2Body* const b = contact->GetFixtureB()->GetBody();
    if (a == bodies_[0] || b == bodies_[0]) has_crashed_ = true;
    for (std::size_t leg = 0; leg < 2; ++leg) {
      if (a == bodies_[leg + 1] || b == bodies_[leg + 1]) touches_[leg] = true;
    }
  }
  void EndContact(b2Contact* contact) override {
    const b2Body* const a = contact->GetFixtureA()->GetBody();
    const b2Body* const b = contact->GetFixtureB()->GetBody();
    for (std::size_t leg = 0; leg < 2; ++leg) {
      if (a == bodies_[leg + 1] || b == bodies_[leg + 1]) touches_[leg] = false;
    }
  }

  void build_ground(const Heights& heights) {
    const b2BodyDef still;
    b2Body* const ground_body = world_.CreateBody(&still);
    b2EdgeShape edge;
    edge.SetTwoSided(vec(0, 0), vec(kWidth, 0));
    ground_body->CreateFixture(&edge, 0);
    for (std::size_t i = 0; i + 1 < kChunks; ++i) {
      edge.SetTwoSided(vec(ground_x(i), ground(heights, i)),
                       vec(ground_x(i + 1), ground(heights, i + 1)));
      b2FixtureDef fixture;
      fixture.shape = &edge;
      fixture.friction = 0.1f;
      ground_body->CreateFixture(&fixture);
    }
  }

  void build_lander() {
    b2BodyDef def;
    def.type = b2_dynamicBody;
    def.position = vec(kWidth / 2, kHeight);
    bodies_[0] = world_.CreateBody(&def);
    std::array<b2Vec2, kHull.size()> corners;
    for (std::size_t i = 0; i < corners.size(); ++i) {
      corners[i] = vec(kHull[i].x / kScale, kHull[i].y / kScale);
    }
    b2PolygonShape hull;
    hull.Set(corners.data(), static_cast<int32>(corners.size()));
    b2FixtureDef fixture;
    fixture.shape = &hull;
    fixture.density = 5;
    fixture.friction = 0.1f;
    fixture.filter.categoryBits = 0x10;
    fixture.filter.maskBits = 0x1;  // collides only with the ground
    bodies_[0]->CreateFixture(&fixture);
  }

  void build_leg(int side) {
    b2BodyDef def;
    def.type = b2_dynamicBody;
    def.position = vec(kWidth / 2 - side * kLegAway, kHeight);
    def.angle = f(side * 0.05);
    b2Body* const leg = world_.CreateBody(&def);
    b2PolygonShape box;
    box.SetAsBox(f(kLegHalfWidth), f(kLegHalfHeight));
    b2FixtureDef fixture;
    fixture.shape = &box;
    fixture.density = 1;
    fixture.filter.categoryBits = 0x20;
    fixture.filter.maskBits = 0x1;
    leg->CreateFixture(&fixture);
    b2RevoluteJointDef joint;
    joint.bodyA = bodies_[0];
    joint.bodyB = leg;
    joint.localAnchorB = vec(side * kLegAway, kLegDown);
    joint.enableMotor = true;
    joint.enableLimit = true;
    joint.maxMotorTorque = f(kLegSpringTorque);
    joint.motorSpeed = f(0.3 * side);
    joint.lowerAngle = side < 0 ? f(0.9 - 0.5) : f(-0.9);
    joint.upperAngle = side < 0 ? f(0.9) : f(-0.9 + 0.5);
    world_.CreateJoint(&joint);
    bodies_[side < 0 ? 1 : 2] = leg;
  }

  b2World world_;
  std::array<b2Body*, kBodies> bodies_{};
  std::array<bool, 2> touches_{};
  bool has_crashed_ = false;
};

struct LanderConfig {
  double gravity = -10;
  bool enable_wind = false;
  double wind_power = 15;
  double turbulence_power = 1.5;
};

// What the engines do in a step: 0, or 0.5 to 1; the side engine's direction is -1 or 1.
struct Thrust {
  double main = 0;
  double side = 0;
  double direction = 0;
};

class LanderBase {
 public:
  using Config = LanderConfig;
  using Observation = float;
  static constexpr NativeCost kCost = NativeCost::kThreads;
  // Position, angle and their velocities of three bodies; which legs stand; the shaping term of the
  // last step; both indices of the wind; the ground. What Box2D only caches between steps
  // (impulses, how long a body rests) is not part of it.
  static constexpr std::size_t kStateSize = 6 * kBodies + 2 + 1 + 2 + kChunks + 1;

  static Result<Config> read(OptionReader& options);

  explicit LanderBase(const Config& config) : config_(config) {}
  void reset(Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 protected:
  static NativeSpec base_spec();
  NativeStep fly(const Thrust& thrust, Random& random);

 private:
  void blow();
  void fire(const Thrust& thrust, Random& random);
  std::array<double, 8> observation() const;

  Config config_;
  Heights heights_{};
  std::unique_ptr<Flight> flight_;
  double shaping_ = 0;
  double wind_index_ = 0;
  double turbulence_index_ = 0;
  bool is_placed_ = false;  // set by set_state(): Box2D has not computed contacts yet
  Thrust last_;
};

Result<LanderConfig> LanderBase::read(OptionReader& options) {
  LanderConfig config;
  config.gravity = options.number("gravity", config.gravity);
  config.enable_wind = options.boolean("enable_wind", config.enable_wind);
  config.wind_power = options.number("wind_power", config.wind_power);
  config.turbulence_power = options.number("turbulence_power", config.turbulence_power);
  if (!(config.gravity > -12 && config.gravity < 0)) {
    return invalid_argument("gravity is {}; it must be between -12 and 0", config.gravity);
  }
  if (!(config.wind_power >= 0 && config.wind_power <= 20)) {
    return invalid_argument("wind_power is {}; it must be in [0, 20]", config.wind_power);
  }
  if (!(config.turbulence_power >= 0 && config.turbulence_power <= 2)) {
    return invalid_argument("turbulence_power is {}; it must be in [0, 2]",
                            config.turbulence_power);
  }
  return config;
}

NativeSpec LanderBase::base_spec() {
  NativeSpec spec;
  spec.observation = {"", DType::kFloat32, {8}};
  spec.max_episode_steps = 1000;
  spec.picture_width = 600;
  spec.picture_height = 400;
  return spec;
}

void LanderBase::reset(Random& random) {
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * random.uniform();
  };
  for (double& height : heights_) height = uniform(0, kHeight / 2);
  for (std::size_t i = kChunks / 2 - 2; i <= kChunks / 2 + 2; ++i) heights_[i] = kPadHeight;
  flight_ = std::make_unique<Flight>(config_.gravity, heights_);
  flight_->lander().ApplyForceToCenter(vec(uniform(-kInitialForceMax, kInitialForceMax),
                                           uniform(-kInitialForceMax, kInitialForceMax)),
                                       true);
  wind_index_ = std::floor(uniform(-9999, 9999));
  turbulence_index_ = std::floor(uniform(-9999, 9999));
  is_placed_ = false;
  fly({}, random);
}

// The wind varies without a period: tanh(sin(2 k i) + sin(pi k i)) with k = 0.01.
void LanderBase::blow() {
  if (!config_.enable_wind || flight_->touches(0) || flight_->touches(1)) return;
  const auto strength = [](double index) {
    return std::tanh(std::sin(0.02 * index) + std::sin(std::numbers::pi * 0.01 * index));
  };
  flight_->lander().ApplyForceToCenter(vec(strength(wind_index_++) * config_.wind_power, 0), true);
  flight_->lander().ApplyTorque(f(strength(turbulence_index_++) * config_.turbulence_power), true);
}

// Applies the impulses of the engines, each at a point shifted by a small random offset.
void LanderBase::fire(const Thrust& thrust, Random& random) {
  b2Body& lander = flight_->lander();
  const auto angle = static_cast<double>(lander.GetAngle());
  const double x = static_cast<double>(lander.GetPosition().x);
  const double y = static_cast<double>(lander.GetPosition().y);
  const double tip_x = std::sin(angle);
  const double tip_y = std::cos(angle);
  const double side_x = -tip_y;
  const double side_y = tip_x;
  const double chance0 = (2 * random.uniform() - 1) / kScale;
  const double chance1 = (2 * random.uniform() - 1) / kScale;
  if (thrust.main > 0) {
    const double along = kMainEngineDown + 2 * chance0;
    const double ox = tip_x * along + side_x * chance1;
    const double oy = -tip_y * along - side_y * chance1;
    const double power = kMainEnginePower * thrust.main;
    lander.ApplyLinearImpulse(vec(-ox * power, -oy * power), vec(x + ox, y + oy), true);
  }
  if (thrust.side > 0) {
    const double across = 3 * chance1 + thrust.direction * kSideEngineAway;
    const double ox = tip_x * chance0 + side_x * across;
    const double oy = -tip_y * chance0 - side_y * across;
    const double power = kSideEnginePower * thrust.side;
    lander.ApplyLinearImpulse(vec(-ox * power, -oy * power),
                              vec(x + ox - tip_x * kSideEngineUpX, y + oy + tip_y * kSideEngineUp),
                              true);
  }
}

std::array<double, 8> LanderBase::observation() const {
  const b2Body& lander = flight_->lander();
  const auto real = [](float x) { return static_cast<double>(x); };
  return {(real(lander.GetPosition().x) - kWidth / 2) / (kWidth / 2),
          (real(lander.GetPosition().y) - (kPadHeight + kLegDown)) / (kHeight / 2),
          real(lander.GetLinearVelocity().x) * (kWidth / 2) / kFramesPerS,
          real(lander.GetLinearVelocity().y) * (kHeight / 2) / kFramesPerS,
          real(lander.GetAngle()),
          20 * real(lander.GetAngularVelocity()) / kFramesPerS,
          flight_->touches(0) ? 1.0 : 0.0,
          flight_->touches(1) ? 1.0 : 0.0};
}

NativeStep LanderBase::fly(const Thrust& thrust, Random& random) {
  last_ = thrust;
  blow();
  if (std::exchange(is_placed_, false)) {
    for (const std::size_t leg : {0, 1}) flight_->set_touches(leg, false);
  }
  fire(thrust, random);
  flight_->step();
  const auto [x, y, vx, vy, angle, spin, left, right] = observation();
  const double shaping = -100 * std::sqrt(x * x + y * y) - 100 * std::sqrt(vx * vx + vy * vy) -
                         100 * std::abs(angle) + 10 * left + 10 * right;
  double reward = shaping - std::exchange(shaping_, shaping);
  reward -= thrust.main * 0.30 + thrust.side * 0.03;
  if (!flight_->lander().IsAwake()) return {100, true};
  if (flight_->has_crashed() || std::abs(x) >= 1) return {-100, true};
  return {f(reward), false};
}

void LanderBase::observe(std::span<float> out) const {
  const std::array<double, 8> values = observation();
  std::transform(values.begin(), values.end(), out.begin(), f);
}

void LanderBase::get_state(std::span<double> out) const {
  auto to = out.begin();
  for (std::size_t i = 0; i < kBodies; ++i) {
    const b2Body& body = flight_->body(i);
    for (const float value :
         {body.GetPosition().x, body.GetPosition().y, body.GetAngle(), body.GetLinearVelocity().x,
          body.GetLinearVelocity().y, body.GetAngularVelocity()}) {
      *to++ = static_cast<double>(value);
    }
  }
  for (const std::size_t leg : {0, 1}) *to++ = flight_->touches(leg) ? 1 : 0;
  *to++ = shaping_;
  *to++ = wind_index_;
  *to++ = turbulence_index_;
  std::copy(heights_.begin(), heights_.end(), to);
}

void LanderBase::set_state(std::span<const double> state) {
  std::copy(state.end() - static_cast<std::ptrdiff_t>(heights_.size()), state.end(),
            heights_.begin());
  flight_ = std::make_unique<Flight>(config_.gravity, heights_);
  auto from = state.begin();
  for (std::size_t i = 0; i < kBodies; ++i, from += 6) {
    b2Body& body = flight_->body(i);
    body.SetTransform(vec(from[0], from[1]), f(from[2]));
    body.SetLinearVelocity(vec(from[3], from[4]));
    body.SetAngularVelocity(f(from[5]));
  }
  for (const std::size_t leg : {0, 1}) flight_->set_touches(leg, *from++ != 0);
  shaping_ = *from++;
  wind_index_ = *from++;
  turbulence_index_ = *from++;
  is_placed_ = true;
  last_ = {};
}

void LanderBase::draw(Canvas& canvas) const {
  const auto pixel = [](double x, double y) { return Point{x * kScale, y * kScale}; };
  canvas.fill({{0, 0}, pixel(kWidth, 0), pixel(kWidth, kHeight), pixel(0, kHeight)}, {16, 18, 38});
  for (std::size_t i = 0; i + 1 < kChunks; ++i) {
    const double x0 = Flight::ground_x(i);
    const double x1 = Flight::ground_x(i + 1);
    canvas.fill({pixel(x0, 0), pixel(x0, Flight::ground(heights_, i)),
                 pixel(x1, Flight::ground(heights_, i + 1)), pixel(x1, 0)},
                {200, 200, 205});
  }
  for (const std::size_t chunk : {kChunks / 2 - 1, kChunks / 2 + 1}) {
    const Point foot = pixel(Flight::ground_x(chunk), kPadHeight);
    canvas.line(foot, {foot.x, foot.y + 50}, 1.5, kWhite);
    canvas.fill({{foot.x, foot.y + 50}, {foot.x, foot.y + 40}, {foot.x + 25, foot.y + 45}},
                {204, 204, 0});
  }
  const b2Body& lander = flight_->lander();
  const Point centre = pixel(static_cast<double>(lander.GetPosition().x),
                             static_cast<double>(lander.GetPosition().y));
  const auto angle = static_cast<double>(lander.GetAngle());
  constexpr Colour kFlame{255, 150, 40};
  if (last_.main > 0) {
    const double length = 14 + 22 * last_.main;
    const Point flame[] = {turned({-7, -10}, angle, centre), turned({7, -10}, angle, centre),
                           turned({0, -length}, angle, centre)};
    canvas.fill(flame, kFlame);
  }
  if (last_.side > 0) {
    const double out = last_.direction;  // the flame is on the side of the engine
    const Point flame[] = {turned({out * -15, 12}, angle, centre),
                           turned({out * -15, 4}, angle, centre),
                           turned({out * -32, 8}, angle, centre)};
    canvas.fill(flame, kFlame);
  }
  constexpr Colour kMetal{128, 102, 230};
  for (std::size_t i = kBodies; i-- > 0;) {
    const b2Body& body = flight_->body(i);
    const auto& shape = static_cast<const b2PolygonShape&>(*body.GetFixtureList()->GetShape());
    std::array<Point, b2_maxPolygonVertices> corners;
    const auto count = static_cast<std::size_t>(shape.m_count);
    for (std::size_t c = 0; c < count; ++c) {
      const b2Vec2 corner = body.GetWorldPoint(shape.m_vertices[c]);
      corners[c] = pixel(static_cast<double>(corner.x), static_cast<double>(corner.y));
    }
    canvas.fill(std::span(corners).first(count), kMetal);
  }
}

class LunarLander final : public LanderBase {
 public:
  using LanderBase::LanderBase;
  using Action = std::int64_t;
  static NativeSpec spec(const Config&) {
    NativeSpec spec = base_spec();
    spec.action_count = 4;
    return spec;
  }
  NativeStep step(std::int64_t action, Random& random) {
    switch (action) {
      case 2:
        return fly({.main = 1}, random);
      case 1:
      case 3:
        return fly({.side = 1, .direction = static_cast<double>(action - 2)}, random);
      default:
        return fly({}, random);
    }
  }
};

class LunarLanderContinuous final : public LanderBase {
 public:
  using LanderBase::LanderBase;
  using Action = ContinuousAction;
  static NativeSpec spec(const Config&) {
    NativeSpec spec = base_spec();
    spec.action_shape = {2};
    spec.action_low = {-1, -1};
    spec.action_high = {1, 1};
    return spec;
  }
  NativeStep step(ContinuousAction action, Random& random) {
    const auto main = std::clamp(static_cast<double>(action[0]), -1.0, 1.0);
    const auto side = std::clamp(static_cast<double>(action[1]), -1.0, 1.0);
    Thrust thrust;
    if (main > 0) thrust.main = (main + 1) / 2;
    if (std::abs(side) > 0.5) {
      thrust.side = std::abs(side);
      thrust.direction = side > 0 ? 1 : -1;
    }
    return fly(thrust, random);
  }
};

// The option `continuous` chooses between the two environments.
NativeFactory lander_factory(bool is_continuous) {
  return [is_continuous](std::string_view id, Options options,
                         std::size_t count) -> Result<std::unique_ptr<NativeBatch>> {
    bool continuous = is_continuous;
    if (const auto given = options.find("continuous"); given != options.end()) {
      const bool* const wanted = std::get_if<bool>(&given->second);
      if (wanted == nullptr) return invalid_argument("option 'continuous' must be true or false");
      continuous = *wanted;
      options.erase(given);
    }
    return continuous ? native_factory<LunarLanderContinuous>()(id, options, count)
                      : native_factory<LunarLander>()(id, options, count);
  };
}

}  // namespace

Status add_box2d_environments(NativeEnvAdder& registry) {
  REVERIE_RETURN_IF_ERROR(registry.add("LunarLander-v3", lander_factory(false)));
  return registry.add("LunarLanderContinuous-v3", lander_factory(true));
}

}  // namespace reverie
