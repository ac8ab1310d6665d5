// Lists the devices of CUDA or HIP, and opens one.
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "gpu/native/core.h"

namespace weft::gpu::native {
namespace {

constexpr uint64_t kStopWordBytes = 256;
// Sleeps of this thread end on time: by default, Linux may end them 50 us late.
class PreciseSleeps {
  public:
    PreciseSleeps() : slack_ns_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1UL); }
    PreciseSleeps(const PreciseSleeps&) = delete;
    PreciseSleeps& operator=(const PreciseSleeps&) = delete;
    ~PreciseSleeps() {
        if (slack_ns_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_ns_));
    }

  private:
    const int slack_ns_;
};

class DeviceOfCore : public Device {
  public:
    DeviceOfCore(std::shared_ptr<Core> core, const OpenOptions& options)
        : core_(std::move(core)), compiler_(std::make_shared<Compiler>(*core_, options)) {}
    Status Begin() {
        WEFT_ASSIGN(stop_word_, AllocateOn(core_, kStopWordBytes, Place::kDevice));
        return {};
    }

    const Description& description() const override { return core_->found.description; }
    std::vector<Heap> heaps() const override { return core_->Heaps(); }
    Result<Buffer> Allocate(uint64_t bytes, Place place) override {
        WEFT_TRY(status());
        return AllocateOn(core_, bytes, place);
    }
    Result<Buffer> AllocateShared(uint64_t bytes, SharedHandle& handle) override {
        WEFT_TRY(status());
        return AllocateSharedOn(core_, bytes, handle);
    }
    Result<Buffer> OpenShared(const SharedHandle& handle, const std::string& pci,
                              uint64_t bytes) override {
        WEFT_TRY(status());
        return OpenSharedOn(core_, handle, pci, bytes);
    }
    uint64_t most_buffer_bytes() const override { return description().heaps[0].total_bytes; }
    const Buffer& stop_word() const override { return stop_word_; }
    Result<std::unique_ptr<Kernel>> MakeKernel(const KernelCode& code) override {
        WEFT_TRY(status());
        return MakeKernelOn(core_, compiler_, code);
    }
    Result<std::unique_ptr<Commands>> Record() override {
        WEFT_TRY(status());
        WEFT_TRY(core_->Enter());
        return RecordOn(core_, stop_word_.address());
    }
    Result<uint64_t> Submit(const Commands& commands) override {
        WEFT_TRY(status());
        WEFT_TRY(core_->Enter());
        WEFT_TRY(SubmitOn(commands));
        return core_->submitted.load();
    }
    Status Wait(uint64_t submission, Deadline deadline) override;
    std::vector<int64_t> Times(const Commands& commands, uint32_t count) override {
        return TimesOf(commands, count);
    }
    Status status() const override { return core_->status(); }

  private:
    std::shared_ptr<Core> core_;
    std::shared_ptr<Compiler> compiler_;
    Buffer stop_word_;
};

Status DeviceOfCore::Wait(uint64_t submission, Deadline deadline) {
    WEFT_TRY(status());
    WEFT_CHECK(submission <= core_->submitted);
    const int64_t begin_ns = NowNs();
    std::optional<PreciseSleeps> precise;
    while (true) {
        WEFT_ASSIGN(const uint64_t done, core_->Done());
        if (done >= submission) return {};
        const int64_t now_ns = NowNs(), waited_ns = now_ns - begin_ns;
        if (now_ns >= deadline.at_ns()) {
            return MakeError(ErrorCode::kTimeout,
                             "{}: submission {} is not done within {} ms ({} of {} are done); it "
                             "continues",
                             core_->Who(), submission, deadline.length_ms(), done,
                             core_->submitted.load());
        }
        const int64_t pause_ns = PollPauseNs(waited_ns);
        if (pause_ns == 0) continue;
        if (!precise) precise.emplace();
        std::this_thread::sleep_for(
            std::chrono::nanoseconds(std::min(pause_ns, deadline.at_ns() - now_ns)));
    }
}

// The PCI device id, from the system; 0: unknown.
uint32_t PciDeviceId(const std::string& pci) {
    const Result<std::string> text = ReadTextFile("/sys/bus/pci/devices/" + pci + "/device", 64);
    return text.ok() ? static_cast<uint32_t>(std::strtoul(text->c_str(), nullptr, 16)) : 0;
}

std::string Lowercase(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

Result<Found> Describe(const Interface& interface, const Calls& calls, int index) {
    const auto check = [&](std::string_view call, Code code) -> Status {
        if (code == 0) return {};
        return MakeError(ErrorCode::kIo, "{}:{}: {} failed: {}", ApiName(interface.api), index,
                         call, CodeName(calls, code));
    };
    Found found;
    Description& described = found.description;
    WEFT_TRY(check("GetDevice", calls.GetDevice(&found.device, index)));
    char text[256] = {};
    WEFT_TRY(check("GetName", calls.GetName(text, sizeof text - 1, found.device)));
    described.api = interface.api;
    described.index = index;
    described.name = text;
    char pci[32] = {};
    WEFT_TRY(check("GetPciBusId", calls.GetPciBusId(pci, sizeof pci - 1, found.device)));
    described.pci = Lowercase(pci);
    size_t bytes = 0;
    WEFT_TRY(check("GetTotalMemory", calls.GetTotalMemory(&bytes, found.device)));
    described.heaps = {
        {.total_bytes = bytes, .free_bytes = bytes, .device_local = true, .for_kernels = true}};
    int version = 0;
    WEFT_TRY(check("GetDriverVersion", calls.GetDriverVersion(&version)));
    described.driver_version = static_cast<uint32_t>(version);
    described.api_version = interface.version(version);
    described.vendor_id = interface.vendor_id;
    described.device_id = PciDeviceId(described.pci);
    described.float16 = true;
    described.timestamp_ns = 1;
    WEFT_TRY(check("the query of properties", interface.describe(calls, found)));
    described.driver = fmt::format("{} {}, {}", ApiTitle(interface.api), described.api_version,
                                   found.architecture);
    described.least_subgroup = described.most_subgroup = described.subgroup;
    described.fast_integer_dot = described.integer_dot;
    described.cooperative_matrix = described.matrix_unit.m > 0;
    const Result<CompilerCalls> compiler = OpenCompiler(interface, found);
    int major = 0, minor = 0;
    if (compiler.ok() && compiler->GetVersion(&major, &minor) == 0) {
        described.driver += fmt::format(", compiler {}.{}", major, minor);  // bits depend on it
    } else if (!compiler.ok() && described.unusable.empty()) {
        described.unusable = compiler.error().message;
    }
    return found;
}

// All devices; none if the driver finds none.
Result<std::vector<Found>> DescribeAll(const Interface& interface, const Calls& calls) {
    std::vector<Found> all;
    int count = 0;
    Code code = calls.Init(0);
    if (code == 0) code = calls.GetDeviceCount(&count);
    if (code == kNoDeviceCode || code == kInvalidDeviceCode) return all;
    if (code != 0) {
        const auto advice = std::ranges::find(interface.advice, code, &Advice::code);
        return MakeError(ErrorCode::kUnsupported, "{}: the driver does not start: {}. {}",
                         ApiTitle(interface.api), CodeName(calls, code),
                         advice == interface.advice.end()
                             ? "The system log (dmesg) may have the reason"
                             : advice->text);
    }
    for (int i = 0; i < count; ++i) {
        WEFT_ASSIGN(Found one, Describe(interface, calls, i));
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace

// A wait first polls without a pause: a decode step's kernels end within this time, or take much
// longer. Pauses below 20 us would take most of a core.
int64_t PollPauseNs(int64_t waited_ns) {
    constexpr int64_t kPollNs = 50'000, kLeastPauseNs = 20'000, kMostPauseNs = 1'000'000;
    constexpr int64_t kPausesPerWait = 250;
    if (waited_ns < kPollNs) return 0;
    return std::clamp(waited_ns / kPausesPerWait, kLeastPauseNs, kMostPauseNs);
}

Result<std::vector<Description>> ListDevicesOf(const Interface& interface) {
    WEFT_ASSIGN(const Calls calls, OpenLibrary(interface));
    WEFT_ASSIGN(const std::vector<Found> all, DescribeAll(interface, calls));
    std::vector<Description> descriptions;
    for (const Found& one : all) descriptions.push_back(one.description);
    return descriptions;
}

Result<std::shared_ptr<Device>> OpenDeviceOf(const Interface& interface, int index,
                                             const OpenOptions& options) {
    WEFT_ASSIGN(const Calls calls, OpenLibrary(interface));
    WEFT_ASSIGN(std::vector<Found> all, DescribeAll(interface, calls));
    const char* const name = ApiName(interface.api);
    if (index < 0 || static_cast<size_t>(index) >= all.size()) {
        return MakeError(ErrorCode::kNotFound,
                         "{}:{} does not exist: the driver lists {} devices. 'weft inspect "
                         "--devices' shows them",
                         name, index, all.size());
    }
    Found& found = all[static_cast<size_t>(index)];
    if (!found.description.unusable.empty()) {
        return MakeError(ErrorCode::kUnsupported, "{}:{} ({}) can't be used: {}", name, index,
                         found.description.name, found.description.unusable);
    }
    auto core = std::make_shared<Core>(interface, calls, std::move(found));
    WEFT_TRY(core->Create());
    auto device = std::make_shared<DeviceOfCore>(std::move(core), options);
    WEFT_TRY(device->Begin());
    return std::shared_ptr<Device>(std::move(device));
}

}  // namespace weft::gpu::native
