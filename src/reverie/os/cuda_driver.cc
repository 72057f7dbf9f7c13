// Tested in tests/python/gpu_peers_test.py.
//
// The driver's library is never loaded here: if the program uses CUDA, it is there. So neither a
// build nor a machine without a GPU needs anything of CUDA's. Declarations are those of cuda.h,
// https://docs.nvidia.com/cuda/cuda-driver-api.
#include "reverie/os/cuda_driver.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <dlfcn.h>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/base/waiting.h"

namespace reverie {
namespace {

// --- cuda.h.

using CuResult = int;
using CuDevice = int;
using CuAddress = unsigned long long;
using CuContext = struct CuContextOf*;
using CuStream = struct CuStreamOf*;
using CuEvent = struct CuEventOf*;

constexpr CuResult kSuccess = 0;
constexpr CuResult kNotReady = 600;
constexpr int kBufferId = 7;             // CU_POINTER_ATTRIBUTE_BUFFER_ID
constexpr int kRangeBegin = 11;          // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
constexpr int kRangeSize = 12;           // CU_POINTER_ATTRIBUTE_RANGE_SIZE
constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
constexpr unsigned kNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
constexpr unsigned kWithoutTiming = 2;   // CU_EVENT_DISABLE_TIMING

struct CuUuid {
  std::byte bytes[16];
};
struct CuHandle {
  std::byte bytes[64];
};

// Waits look at once, then ever less often.
constexpr int kLooksAtOnce = 200;
constexpr Duration kPauseMin = std::chrono::microseconds(20);
constexpr Duration kPauseMax = std::chrono::milliseconds(1);
// Smaller allocations share a block with others, which a handle would open too.
constexpr std::size_t kNonceBytes = std::size_t{2} << 20;
// For copies of a few bytes to and from the host.
constexpr Duration kCopyMax = std::chrono::seconds(60);

struct Functions {
  CuResult (*get_error_name)(CuResult, const char**);
  CuResult (*device_count)(int*);
  CuResult (*device_get)(CuDevice*, int);
  CuResult (*device_uuid)(CuUuid*, CuDevice);
  CuResult (*context_state)(CuDevice, unsigned*, int*);
  CuResult (*context_retain)(CuContext*, CuDevice);
  CuResult (*context_push)(CuContext);
  CuResult (*context_pop)(CuContext*);
  CuResult (*address_range)(CuAddress*, std::size_t*, CuAddress);
  CuResult (*pointer_attribute)(void*, int, CuAddress);
  CuResult (*handle_of)(CuHandle*, CuAddress);
  CuResult (*open_handle)(CuAddress*, CuHandle, unsigned);
  CuResult (*close_handle)(CuAddress);
  CuResult (*allocate)(CuAddress*, std::size_t);
  CuResult (*copy_within)(CuAddress, CuAddress, std::size_t, CuStream);
  CuResult (*copy_out)(void*, CuAddress, std::size_t, CuStream);
  CuResult (*copy_in)(CuAddress, const void*, std::size_t, CuStream);
  CuResult (*stream_create)(CuStream*, unsigned);
  CuResult (*event_create)(CuEvent*, unsigned);
  CuResult (*event_record)(CuEvent, CuStream);
  CuResult (*event_query)(CuEvent);
  CuResult (*event_destroy)(CuEvent);
};

template <typename Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool load_all(void* library, Functions& f) {
  return load(library, "cuGetErrorName", f.get_error_name) &&
         load(library, "cuDeviceGetCount", f.device_count) &&
         load(library, "cuDeviceGet", f.device_get) &&
         // The second version tells the parts of a divided GPU (MIG) apart.
         (load(library, "cuDeviceGetUuid_v2", f.device_uuid) ||
          load(library, "cuDeviceGetUuid", f.device_uuid)) &&
         load(library, "cuDevicePrimaryCtxGetState", f.context_state) &&
         load(library, "cuDevicePrimaryCtxRetain", f.context_retain) &&
         load(library, "cuCtxPushCurrent_v2", f.context_push) &&
         load(library, "cuCtxPopCurrent_v2", f.context_pop) &&
         load(library, "cuMemGetAddressRange_v2", f.address_range) &&
         load(library, "cuPointerGetAttribute", f.pointer_attribute) &&
         load(library, "cuIpcGetMemHandle", f.handle_of) &&
         load(library, "cuIpcOpenMemHandle_v2", f.open_handle) &&
         load(library, "cuIpcCloseMemHandle", f.close_handle) &&
         load(library, "cuMemAlloc_v2", f.allocate) &&
         load(library, "cuMemcpyDtoDAsync_v2", f.copy_within) &&
         load(library, "cuMemcpyDtoHAsync_v2", f.copy_out) &&
         load(library, "cuMemcpyHtoDAsync_v2", f.copy_in) &&
         load(library, "cuStreamCreate", f.stream_create) &&
         load(library, "cuEventCreate", f.event_create) &&
         load(library, "cuEventRecord", f.event_record) &&
         load(library, "cuEventQuery", f.event_query) &&
         load(library, "cuEventDestroy_v2", f.event_destroy);
}

// --- The driver.

class CudaDriver final : public DeviceDriver {
 public:
  std::optional<int> find(const DeviceUuid& uuid) override {
    MutexLock lock(mutex_);
    if (!look()) return std::nullopt;
    for (const auto& [index, device] : devices_) {
      if (device.uuid == uuid && use(index)) return index;
    }
    return std::nullopt;
  }

  std::optional<DeviceUuid> uuid_of(int device) override {
    MutexLock lock(mutex_);
    if (!look() || !use(device)) return std::nullopt;
    return devices_.at(device).uuid;
  }

  Result<DeviceAllocation> export_memory(int device, std::uint64_t address) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    DeviceAllocation found;
    REVERIE_ASSIGN_OR_RETURN(found.range, range_at(address));
    REVERIE_RETURN_IF_ERROR(
        checked("cuPointerGetAttribute", f_.pointer_attribute(&found.id, kBufferId, address)));
    CuHandle handle;
    REVERIE_RETURN_IF_ERROR(
        checked("cuIpcGetMemHandle", f_.handle_of(&handle, found.range.address)));
    std::copy_n(handle.bytes, found.handle.size(), found.handle.begin());
    return found;
  }

  Result<DeviceRange> open(int device, const DeviceHandle& handle) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    CuHandle given;
    std::copy_n(handle.begin(), handle.size(), given.bytes);
    CuAddress address = 0;
    REVERIE_RETURN_IF_ERROR(
        checked("cuIpcOpenMemHandle", f_.open_handle(&address, given, kLazyPeerAccess)));
    const Result<DeviceRange> range = range_at(address);
    const std::uint64_t before = range.ok() ? address - range->address : 0;
    if (range.ok() && range->address <= address && before < range->size_bytes) {
      return DeviceRange{address, range->size_bytes - before};
    }
    (void)f_.close_handle(address);
    if (!range.ok()) return range.status();
    return unavailable(
        "the driver says that an opened allocation of {} bytes ends before it begins",
        range->size_bytes);
  }
  void close(int device, std::uint64_t address) override {
    const Scope scope(*this, device);
    if (scope.status().ok()) (void)f_.close_handle(address);
  }

  Result<DeviceNonce> nonce(int device) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    MutexLock lock(nonces_mutex_);
    const auto known = nonces_.find(device);
    if (known != nonces_.end()) return known->second;
    DeviceNonce made;
    const std::uint64_t parts[] = {random_seed(), random_seed()};
    static_assert(sizeof(parts) == sizeof(made.bytes));
    std::memcpy(made.bytes.data(), parts, sizeof(parts));
    CuAddress address = 0;
    REVERIE_RETURN_IF_ERROR(checked("cuMemAlloc", f_.allocate(&address, kNonceBytes)));
    made.address = address;
    const CuStream stream = scope.own_stream();
    REVERIE_RETURN_IF_ERROR(checked(
        "cuMemcpyHtoDAsync", f_.copy_in(address, made.bytes.data(), made.bytes.size(), stream)));
    REVERIE_RETURN_IF_ERROR(wait_here(stream, Clock::system().now() + kCopyMax));
    return nonces_.emplace(device, made).first->second;
  }

  Status copy(int device, std::uint64_t to, std::uint64_t from, std::size_t size_bytes,
              std::uint64_t stream) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    return checked("cuMemcpyDtoDAsync", f_.copy_within(to, from, size_bytes, stream_at(stream)));
  }

  Status copy_to_host(int device, std::span<std::byte> to, std::uint64_t from) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    // Not the default stream, on which much may be queued.
    const CuStream stream = scope.own_stream();
    REVERIE_RETURN_IF_ERROR(
        checked("cuMemcpyDtoHAsync", f_.copy_out(to.data(), from, to.size(), stream)));
    return wait_here(stream, Clock::system().now() + kCopyMax);
  }

  Status wait(int device, std::uint64_t stream, TimePoint deadline) override {
    const Scope scope(*this, device);
    REVERIE_RETURN_IF_ERROR(scope.status());
    return wait_here(stream_at(stream), deadline);
  }

 private:
  struct Device {
    CuDevice id = 0;
    DeviceUuid uuid{};
    CuContext context = nullptr;  // once the program uses the device
    CuStream stream = nullptr;    // for copies to and from the host
  };

  // Makes a device's context the thread's, and the previous one again at the end.
  class Scope {
   public:
    Scope(CudaDriver& driver, int device) : driver_(driver) {
      MutexLock lock(driver.mutex_);
      if (!driver.look() || !driver.use(device)) {
        status_ = unavailable("CUDA device {} is not used by this process", device);
        return;
      }
      const Device& found = driver.devices_.at(device);
      stream_ = found.stream;
      status_ = driver.checked("cuCtxPushCurrent", driver.f_.context_push(found.context));
    }
    ~Scope() {
      CuContext ours = nullptr;
      if (status_.ok()) (void)driver_.f_.context_pop(&ours);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    const Status& status() const { return status_; }
    CuStream own_stream() const { return stream_; }

   private:
    CudaDriver& driver_;
    CuStream stream_ = nullptr;
    Status status_;
  };

  static CuStream stream_at(std::uint64_t stream) {
    const auto number = static_cast<std::uintptr_t>(stream);
    return reinterpret_cast<CuStream>(number);  // NOLINT(performance-no-int-to-ptr)
  }

  Status checked(const char* function, CuResult result) const {
    if (result == kSuccess) return {};
    const char* name = nullptr;
    if (f_.get_error_name(result, &name) != kSuccess || name == nullptr) name = "unknown error";
    return unavailable("{} failed: {} ({})", function, name, result);
  }

  Result<DeviceRange> range_at(CuAddress address) const {
    CuAddress begin = 0;
    std::size_t size = 0;
    const CuResult result = f_.address_range(&begin, &size, address);
    const bool is_known =
        result == kSuccess || (f_.pointer_attribute(&begin, kRangeBegin, address) == kSuccess &&
                               f_.pointer_attribute(&size, kRangeSize, address) == kSuccess);
    if (!is_known) return checked("cuMemGetAddressRange", result);
    return DeviceRange{begin, size};
  }

  Status wait_here(CuStream stream, TimePoint deadline) {
    CuEvent event = nullptr;
    REVERIE_RETURN_IF_ERROR(checked("cuEventCreate", f_.event_create(&event, kWithoutTiming)));
    CuResult result = f_.event_record(event, stream);
    const char* const function = result == kSuccess ? "cuEventQuery" : "cuEventRecord";
    if (result == kSuccess) result = wait_for(event, deadline);
    (void)f_.event_destroy(event);
    if (result == kNotReady) {
      return deadline_exceeded("the work that is queued for a CUDA device is not done in time");
    }
    return checked(function, result);
  }

  CuResult wait_for(CuEvent event, TimePoint deadline) {
    CuResult result = kNotReady;
    for (int i = 0; i < kLooksAtOnce; ++i) {
      result = f_.event_query(event);
      if (result != kNotReady) return result;
    }
    Clock& clock = Clock::system();
    Duration pause = kPauseMin;
    while (result == kNotReady && clock.now() < deadline) {
      pause_until(clock, std::min(deadline, clock.now() + pause));
      pause = std::min(2 * pause, kPauseMax);
      result = f_.event_query(event);
    }
    return result;
  }

  // Whether the program has loaded the driver and made it ready.
  bool look() REVERIE_REQUIRES(mutex_) {
    if (is_found_) return true;
    if (library_ == nullptr) library_ = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library_ == nullptr || !load_all(library_, f_)) return false;
    int count = 0;
    if (f_.device_count(&count) != kSuccess) return false;
    for (int i = 0; i < count; ++i) {
      Device device;
      CuUuid uuid;
      if (f_.device_get(&device.id, i) != kSuccess ||
          f_.device_uuid(&uuid, device.id) != kSuccess) {
        continue;
      }
      std::copy_n(uuid.bytes, device.uuid.size(), device.uuid.begin());
      devices_.emplace(i, device);
    }
    is_found_ = true;
    return true;
  }

  // Whether the program uses the device; makes no context of its own.
  bool use(int index) REVERIE_REQUIRES(mutex_) {
    const auto place = devices_.find(index);
    if (place == devices_.end()) return false;
    Device& device = place->second;
    if (device.context != nullptr) return true;
    unsigned flags = 0;
    int is_active = 0;
    if (f_.context_state(device.id, &flags, &is_active) != kSuccess || is_active == 0) {
      return false;
    }
    CuContext context = nullptr;
    if (f_.context_retain(&context, device.id) != kSuccess) return false;
    if (f_.context_push(context) != kSuccess) return false;
    const CuResult made = f_.stream_create(&device.stream, kNonBlocking);
    (void)f_.context_pop(&context);
    if (made != kSuccess) return false;
    device.context = context;
    return true;
  }

  Mutex nonces_mutex_;
  std::map<int, DeviceNonce> nonces_ REVERIE_GUARDED_BY(nonces_mutex_);
  Mutex mutex_;
  void* library_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  bool is_found_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<int, Device> devices_ REVERIE_GUARDED_BY(mutex_);
  Functions f_{};  // written before any device is known
};

}  // namespace

DeviceDriver& cuda_driver() {
  static auto* const driver = new CudaDriver;
  return *driver;
}

}  // namespace reverie
