// An object that allows one call at a time, though calls release the interpreter's lock.
#pragma once

namespace reverie::python {

// The interpreter's lock guards it, except while a call waits or copies without it: then it is in
// use, and other calls are refused.
struct OneCallAtATime {
  explicit OneCallAtATime(const char* name) : what(name) {}

  const char* what;  // for messages: "writer"
  bool in_use = false;
};

// Marks it as in use during a call; raises if it is already.
class InUse {
 public:
  explicit InUse(OneCallAtATime& calls) : calls_(calls) {
    check(calls);
    calls.in_use = true;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse() { calls_.in_use = false; }

  // For calls that never wait.
  static void check(const OneCallAtATime& calls) {
    if (calls.in_use) [[unlikely]] {
      refuse(calls);
    }
  }

 private:
  [[noreturn, gnu::cold]] static void refuse(const OneCallAtATime& calls);

  OneCallAtATime& calls_;
};

}  // namespace reverie::python
