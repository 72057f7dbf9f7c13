// A counted pointer, one word wide, for immutable things that many items share.
//
// The count lies in the object (RefCounted), so a Ref costs 8 bytes where a shared_ptr costs
// 16, and an object costs no second allocation. Counts never lie in shared memory: only heap
// objects derive from RefCounted.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace reverie {

// Derive as `class Chunk : public RefCounted<Chunk>`; the last Ref deletes the object.
template <typename T>
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void add_ref() const { ref_count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (ref_count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete static_cast<const T*>(this);
  }
  std::uint32_t ref_count() const { return ref_count_.load(std::memory_order_relaxed); }

 protected:
  RefCounted() = default;
  ~RefCounted() = default;

 private:
  mutable std::atomic<std::uint32_t> ref_count_{1};
};

template <typename T>
class Ref {
 public:
  Ref() = default;
  Ref(const Ref& other) : object_(other.object_) {
    if (object_) object_->add_ref();
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // A Ref<T> is a Ref<const T> too.
  template <typename U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& other)
      : object_(other.get()) {  // NOLINT(google-explicit-constructor)
    if (object_) object_->add_ref();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }

  // Takes over the one count that `object` was made with (or that release() returned).
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  // A further reference to an object that others hold already. `object` may be null.
  static Ref share(T* object) {
    if (object) object->add_ref();
    return adopt(object);
  }
  // Passes the count on to the caller.
  T* release() { return std::exchange(object_, nullptr); }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

template <typename T, typename... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::adopt(new T(std::forward<Args>(args)...));
}

}  // namespace reverie
