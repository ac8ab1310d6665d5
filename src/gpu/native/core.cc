#include "gpu/native/core.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/deadline.h"
#include "base/log.h"

namespace weft::gpu::native {
namespace {

constexpr int64_t kSettleMs = 60'000;
// After so many failed queries in a row (a tenth of a second), the driver answers no more queries:
// the process ends, or the context is destroyed.
constexpr int kMostFailures = 1000;
constexpr unsigned kNoTiming = 2, kNonBlocking = 1;
// After these results, no call of the process on this device succeeds: an uncorrectable memory
// error, an illegal address, a launch that ran too long or failed, an assertion, an error of NVLink
// that the driver contained, ... (cuda.h: "the process must be terminated and relaunched")
constexpr std::array kLostCodes = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721};

}  // namespace

std::string CodeName(const Calls& calls, Code code) {
    const char* name = nullptr;
    if (calls.GetErrorName != nullptr) static_cast<void>(calls.GetErrorName(code, &name));
    if (calls.ErrorName != nullptr) name = calls.ErrorName(code);
    return name != nullptr ? name : fmt::format("result {}", code);
}

Status Core::Create() {
    if (calls.RetainContext != nullptr)
        WEFT_TRY(Check("RetainContext", calls.RetainContext(&context, found.device)));
    WEFT_TRY(Enter());
    return Check("CreateStream", calls.CreateStream(&stream, kNonBlocking));
}

Core::~Core() {
    if (!Settled() || abandoned || lost) return;
    static_cast<void>(Enter());
    for (const Handle event : events_) static_cast<void>(calls.DestroyEvent(event));
    if (stream != nullptr) static_cast<void>(calls.DestroyStream(stream));
    if (context != nullptr) static_cast<void>(calls.ReleaseContext(found.device));
}

std::string Core::Who() const {
    const Description& gpu = found.description;
    return fmt::format("{}:{} ({})", ApiName(gpu.api), gpu.index, gpu.name);
}

Error Core::Fail(std::string_view call, Code code) {
    const std::string name = CodeName(calls, code);
    if (std::ranges::count(kLostCodes, code) > 0) {
        lost = true;
        return MakeError(ErrorCode::kPeerLost,
                         "{}: the device is lost ({} in {}): a GPU kernel failed or ran too long, "
                         "or the hardware did. The system log (dmesg) has the reason; start the "
                         "job again",
                         Who(), name, call);
    }
    return MakeError(code == kOutOfMemoryCode ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
                     "{}: {} failed: {}", Who(), call, name);
}

Status Core::status() const {
    if (!lost) return {};
    return MakeError(ErrorCode::kPeerLost, "{}: the device was lost in an earlier call", Who());
}

Status Core::Enter() {
    return Check("SetContext", calls.SetDevice != nullptr ? calls.SetDevice(found.device)
                                                          : calls.SetContext(context));
}

std::vector<Heap> Core::Heaps() {
    std::vector<Heap> heaps = found.description.heaps;
    size_t free_bytes = 0, total_bytes = 0;
    if (Enter().ok() && Check("GetMemory", calls.GetMemory(&free_bytes, &total_bytes)).ok()) {
        heaps[0].free_bytes = free_bytes;
        heaps[0].total_bytes = total_bytes;
    }
    return heaps;
}

Result<Handle> Core::TakeEvent(bool timed) {
    Handle event = nullptr;
    if (!timed) {
        const std::lock_guard lock(mutex_);
        if (!events_.empty()) {
            event = events_.back();
            events_.pop_back();
            return event;
        }
    }
    WEFT_TRY(Check("CreateEvent", calls.CreateEvent(&event, timed ? 0 : kNoTiming)));
    return event;
}

Status Core::EndSubmission(Handle event, size_t places) {
    const Code code = calls.RecordEvent(event, stream);
    if (code != 0) {
        abandoned = true;
        return Fail("RecordEvent", code);
    }
    const std::lock_guard lock(mutex_);
    running_.push_back({++submitted, event, places});
    return {};
}

size_t Core::QueuedPlaces() {
    const std::lock_guard lock(mutex_);
    size_t places = 0;
    for (const Running& one : running_) places += one.places;
    return places;
}

Result<uint64_t> Core::Done() {
    WEFT_TRY(Enter());
    const std::lock_guard lock(mutex_);
    while (!running_.empty()) {
        const Code code = calls.QueryEvent(running_.front().end);
        if (code == kNotReadyCode) break;
        WEFT_TRY(Check("QueryEvent", code));
        done = running_.front().number;
        events_.push_back(running_.front().end);
        running_.pop_front();
    }
    return done.load();
}

bool Core::Settled(uint64_t last) {
    const Deadline deadline = Deadline::In(kSettleMs);
    int failures = 0;
    while (!lost && !abandoned && done < last && !deadline.expired()) {
        const Result<uint64_t> now = Done();
        if (now.ok() && *now >= last) break;
        failures = now.ok() ? 0 : failures + 1;
        if (failures == kMostFailures) break;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (lost) return false;  // the driver frees a lost context's memory at the process's end
    if (done >= last && !abandoned) return true;
    if (!abandoned.exchange(true)) {
        Log(LogLevel::kWarning, "{}: a submission is not done after {}; its memory is not freed",
            Who(),
            failures == kMostFailures ? fmt::format("{} failed queries", failures)
                                      : fmt::format("{} ms", kSettleMs));
    }
    return false;
}

Memory::~Memory() {
    if (device == 0 && host == nullptr) return;
    if (!core->Settled()) return;
    static_cast<void>(core->Enter());  // if it fails, the device may be current all the same
    const Calls& calls = core->calls;
    static_cast<void>(host != nullptr ? calls.FreeHost(host)
                                      : (opened ? calls.CloseSharedHandle : calls.Free)(device));
}

Result<Buffer> AllocateOn(std::shared_ptr<Core> shared, uint64_t bytes, Place place) {
    Core& core = *shared;
    WEFT_TRY(core.Enter());
    const uint64_t size = std::max<uint64_t>(bytes, 4);
    auto memory = std::make_unique<Memory>(std::move(shared));
    Code code = kOutOfMemoryCode;
    // A size that no device has may overflow in the driver.
    if (size <= core.found.description.heaps[0].total_bytes || place != Place::kDevice) {
        code = place == Place::kDevice
                   ? core.calls.Allocate(&memory->device, size)
                   : core.calls.AllocateHost(&memory->host, size, core.interface.host_flags);
    }
    if (code == kOutOfMemoryCode) {
        const Heap heap = core.Heaps()[0];
        return MakeError(ErrorCode::kOutOfMemory,
                         "{}: no {} memory for {} bytes ({} MiB); heaps: {} MiB free of {} MiB on "
                         "the device",
                         core.Who(), place == Place::kDevice ? "device" : "host", bytes,
                         bytes >> 20, heap.free_bytes >> 20, heap.total_bytes >> 20);
    }
    WEFT_TRY(core.Check("Allocate", code));
    Address address = memory->device;
    if (memory->host != nullptr) {
        WEFT_TRY(
            core.Check("GetHostAddress", core.calls.GetHostAddress(&address, memory->host, 0)));
    }
    auto* const host = static_cast<std::byte*>(memory->host);
    return Buffer(std::move(memory), address, bytes, host);
}

// Drivers name whole allocations, so the size is a multiple of their blocks. On AMD, kernels see
// each other's writes while they run only in fine-grained memory.
Result<Buffer> AllocateSharedOn(std::shared_ptr<Core> shared, uint64_t bytes,
                                SharedHandle& handle) {
    constexpr uint64_t kBlockBytes = uint64_t{2} << 20;
    constexpr unsigned kFineGrained = 1;
    Core& core = *shared;
    WEFT_TRY(core.Enter());
    const uint64_t size = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    auto memory = std::make_unique<Memory>(std::move(shared));
    WEFT_TRY(
        core.Check("Allocate", core.calls.AllocateFlagged != nullptr
                                   ? core.calls.AllocateFlagged(&memory->device, size, kFineGrained)
                                   : core.calls.Allocate(&memory->device, size)));
    WEFT_TRY(core.Check("GetSharedHandle", core.calls.GetSharedHandle(&handle, memory->device)));
    const Address address = memory->device;
    return Buffer(std::move(memory), address, bytes, nullptr);
}

Result<Buffer> OpenSharedOn(std::shared_ptr<Core> shared, const SharedHandle& handle,
                            const std::string& pci, uint64_t bytes) {
    constexpr unsigned kLazyPeerAccess = 1;
    Core& core = *shared;
    WEFT_TRY(core.Enter());
    int peer = -1, can = 1;
    const Code found = core.calls.GetDeviceByPciBusId(&peer, pci.c_str());
    if (found == kInvalidValueCode || found == kNoDeviceCode || found == kInvalidDeviceCode) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the driver shows no device at {} to this process: each rank must see "
                         "the GPUs of all ranks of its host",
                         core.Who(), pci);
    }
    WEFT_TRY(core.Check("GetDeviceByPciBusId", found));
    if (peer != core.found.device)
        WEFT_TRY(
            core.Check("CanAccessPeer", core.calls.CanAccessPeer(&can, core.found.device, peer)));
    if (can == 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the driver gives it no access to the memory of the device at {}",
                         core.Who(), pci);
    }
    auto memory = std::make_unique<Memory>(std::move(shared));
    memory->opened = true;
    WEFT_TRY(core.Check("OpenSharedHandle",
                        core.calls.OpenSharedHandle(&memory->device, handle, kLazyPeerAccess)));
    const Address address = memory->device;
    return Buffer(std::move(memory), address, bytes, nullptr);
}

}  // namespace weft::gpu::native
