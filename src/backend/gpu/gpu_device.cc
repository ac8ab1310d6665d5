#include "backend/gpu/gpu_device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "backend/gpu/compile.h"
#include "backend/gpu/device/kernel_cache.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/tune/tune.h"
#include "base/hash.h"
#include "base/log.h"
#include "gpu/cards.h"
#include "hw/cpu.h"
#include "hw/memory.h"
#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

constexpr int64_t kMostExperts = 1024;
constexpr int64_t kMostLatentColumns = 1024;
constexpr uint32_t kAmd = 0x1002;

// The parts of "vulkan:N", or of "vulkan".
struct GpuName {
    gpu::Api api = gpu::kApis[0];
    std::optional<int> number;
};
std::optional<GpuName> ParseName(std::string_view name) {
    const size_t colon = name.find(':');
    const std::string_view kind = name.substr(0, colon);
    const auto api = std::ranges::find(gpu::kApis, kind, gpu::ApiName);
    if (api == gpu::kApis.end()) return std::nullopt;
    if (colon == std::string_view::npos) return GpuName{*api, std::nullopt};
    const std::string_view digits = name.substr(colon + 1);
    const char* const end = digits.data() + digits.size();
    int number = -1;
    const auto [read, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || read != end || number < 0) return std::nullopt;
    return GpuName{*api, number};
}

std::string NameOf(const gpu::Description& gpu) {
    return fmt::format("{}:{}", gpu::ApiName(gpu.api), gpu.index);
}

// The devices that a name without a number may select, best first (ChooseGpus): each card once.
std::vector<const gpu::Description*> InOrder(const std::vector<gpu::Description>& all,
                                             int local_rank) {
    std::vector<const gpu::Description*> order;
    for (const gpu::Description& gpu : all) {
        const auto same = [&](const gpu::Description* one) { return gpu::IsSameCard(*one, gpu); };
        if (gpu.kind != gpu::Kind::kCpu && gpu.unusable.empty() &&
            std::ranges::none_of(order, same))
            order.push_back(&gpu);
    }
    std::ranges::stable_sort(order, {}, [](const gpu::Description* gpu) { return gpu->kind; });
    for (auto begin = order.begin(); begin != order.end();) {
        const auto end = std::find_if(begin, order.end(), [&](const gpu::Description* gpu) {
            return gpu->kind != (*begin)->kind;
        });
        std::rotate(begin, begin + local_rank % (end - begin), end);
        begin = end;
    }
    return order;
}

std::string ListText(const std::vector<gpu::Description>& all) {
    std::string text;
    for (const gpu::Description& gpu : all) {
        text += fmt::format("{}{} is {}{}", text.empty() ? "" : ", ", NameOf(gpu), gpu.name,
                            gpu.unusable.empty() ? "" : " (" + gpu.unusable + ")");
    }
    return text;
}

Result<gpu::Description> FindGpu(const std::string& name, int local_rank = 0) {
    WEFT_TRY(CheckBuilt());
    const GpuName parsed = ParseName(name).value_or(GpuName{});
    WEFT_ASSIGN(const std::vector<gpu::Description> all, gpu::ListDevices(parsed.api));
    if (all.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "--device {}: this machine has no {} device. {} Or use --device cpu.",
                         name, gpu::ApiTitle(parsed.api), gpu::DriverAdvice(parsed.api));
    }
    const auto order = InOrder(all, local_rank);
    const gpu::Description* found = !parsed.number && !order.empty() ? order[0] : nullptr;
    for (const gpu::Description& gpu : all) {
        if (parsed.number && gpu.index == *parsed.number) found = &gpu;
    }
    if (found == nullptr && !parsed.number) {
        return MakeError(ErrorCode::kNotFound,
                         "--device {}: no usable GPU; {}. Weft uses a Vulkan device that computes "
                         "on the CPU only if --device names its number.",
                         name, ListText(all));
    }
    if (found == nullptr) {
        return MakeError(ErrorCode::kNotFound, "no device '{}' here; {}", name, ListText(all));
    }
    if (!found->unusable.empty()) {
        return MakeError(ErrorCode::kUnsupported, "{} ({}) cannot be used: {}", NameOf(*found),
                         found->name, found->unusable);
    }
    return *found;
}

DeviceInfo InfoOf(const gpu::Description& gpu, bool reference, const Arithmetic& arithmetic) {
    DeviceInfo info;
    info.name = NameOf(gpu);
    info.hardware = gpu.name;
    info.kernels = gpu::ApiName(gpu.api);
    info.kernels_built = {info.kernels};
    info.identity = IdentityOf(gpu, reference, arithmetic);
    info.target = TargetOfGpus();
    info.uses_host_cores = gpu.kind == gpu::Kind::kCpu;
    info.submits = true;
    info.backend = gpu::ApiTitle(gpu.api);
    return info;
}

MemoryPool PoolOf(const gpu::Description& gpu, const std::vector<gpu::Heap>& heaps) {
    MemoryPool pool;
    pool.kind = gpu.unified ? MemoryKind::kUnified : MemoryKind::kDevice;
    for (const gpu::Heap& heap : heaps) {
        if (!heap.for_kernels) continue;
        pool.total_bytes += heap.total_bytes;
        pool.free_bytes += heap.free_bytes;
    }
    // A software GPU's memory is the host's, whatever the driver reports.
    if (gpu.kind == gpu::Kind::kCpu) {
        pool.free_bytes = std::min(pool.free_bytes, AvailableMemoryBytes());
    } else if (gpu.unified) {
        const auto apart = SetApartBytes("/sys/class/drm", gpu.vendor_id, gpu.device_id);
        TakeOfHost(gpu, apart, MachineMemoryBytes(), pool);
    }
    return pool;
}

constexpr int kMostHostThreads = 8;

class GpuDevice final : public Device {
  public:
    GpuDevice(DeviceInfo info, std::shared_ptr<Context> context, int threads)
        : info_(std::move(info)), context_(std::move(context)), threads_(threads) {}

    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override {
        MemoryPool pool = PoolOf(context_->gpu->description(), context_->gpu->heaps());
        pool.held_bytes = context_->held_bytes;
        return pool;
    }
    Status status() const override {
        const Status gpu = context_->gpu->status();
        return gpu.ok() && context_->hangs
                   ? MakeError(ErrorCode::kPeerLost, "{} does not answer", context_->Who())
                   : gpu;
    }
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override {
        if (program.chunks.empty()) {  // not for training
            const std::lock_guard lock(context_->mutex);
            TuneFor(program.program, *context_->gpu, context_->arithmetic);
        }
        return CompileForVulkan(std::move(program), options, context_, pool());
    }
    ThreadTeam& host_team() override {
        if (!team_) {
            team_.emplace(TeamOptions{
                .threads = std::clamp(threads_, 1, kMostHostThreads), .cores = {}, .rare = true});
        }
        return *team_;
    }
    double MeasurePeak(DType) override { return 0; }

  private:
    DeviceInfo info_;
    std::shared_ptr<Context> context_;
    int threads_;
    std::optional<ThreadTeam> team_;  // created at its first use
};

}  // namespace

program::Target TargetOfGpus() {
    program::Target target;
    target.page_tokens = kPageTokens;
    target.most_experts = kMostExperts;
    target.most_latent_columns = kMostLatentColumns;
    target.float64_reductions = false;
    target.float64_sums = false;
    return target;
}

bool IsName(std::string_view name) {
    return ParseName(name).has_value();
}

Status CheckBuilt() {
    if (!shaders::Names().empty()) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "this weft was built without GPU kernels (no glslc, or -DWEFT_GPU=OFF). Use "
                     "--device cpu, or build it again with them.");
}

GpuChoice ChooseGpus(int local_rank) {
    GpuChoice choice;
    if (!CheckBuilt().ok()) return choice;
    const gpu::Cards found = gpu::ListCards();
    if (found.cards.empty())
        Log(LogLevel::kDebug, "--device auto: no GPU: {}", fmt::join(found.none, "; "));
    std::vector<gpu::Description> all;
    for (const gpu::Card& card : found.cards) all.push_back(card.best());
    for (const gpu::Description* gpu : InOrder(all, local_rank)) {
        choice.gpus.push_back({NameOf(*gpu), PoolOf(*gpu, gpu->heaps)});
    }
    for (const gpu::Description& gpu : all) {
        if (gpu.kind == gpu::Kind::kCpu || gpu.unusable.empty() || gpu.hidden) continue;
        choice.left_out += fmt::format("{}{} ({}): {}", choice.left_out.empty() ? "" : "; ",
                                       NameOf(gpu), gpu.name, gpu.unusable);
    }
    return choice;
}

Result<DeviceInfo> Describe(const std::string& name, const DeviceOptions& options) {
    WEFT_ASSIGN(const gpu::Description gpu, FindGpu(name, options.local_rank));
    return InfoOf(gpu, options.reference, ArithmeticOf(gpu, options));
}

Result<MemoryPool> DescribePool(const std::string& name) {
    WEFT_ASSIGN(const gpu::Description gpu, FindGpu(name));
    return PoolOf(gpu, gpu.heaps);
}

Result<std::shared_ptr<Device>> Open(const std::string& name, const DeviceOptions& options,
                                     const Limits& limits) {
    WEFT_ASSIGN(const gpu::Description gpu, FindGpu(name, options.local_rank));
    gpu::OpenOptions open;
    open.validate = std::getenv("WEFT_VULKAN_VALIDATE") != nullptr;
    open.cache_folder = KernelFolder();
    open.stopped = options.stopped;
    WEFT_ASSIGN(std::shared_ptr<gpu::Device> opened, gpu::Device::Open(gpu.api, gpu.index, open));
    const Arithmetic arithmetic = limits.arithmetic.value_or(ArithmeticOf(gpu, options));
    DeviceInfo info = InfoOf(gpu, options.reference, arithmetic);
    auto context =
        std::make_shared<Context>(std::move(opened), info.name, options.reference, arithmetic);
    context->limits = limits;
    context->kernels.SetStopped(options.stopped);
    return std::shared_ptr<Device>(
        std::make_shared<GpuDevice>(std::move(info), std::move(context), options.threads));
}

Arithmetic ArithmeticOf(const gpu::Description& gpu, const DeviceOptions& options) {
    Arithmetic arithmetic;
    SetSizes(gpu, arithmetic);
    if (options.reference || options.exact) return arithmetic;
    arithmetic.integer = gpu.fast_integer_dot;
    // (A driver for the processor emulates matrix units, which is slow.)
    const bool has_units = gpu.cooperative_matrix && gpu.kind != gpu::Kind::kCpu;
    if (has_units && HasMatrixKernels(gpu)) {
        arithmetic.matrix = Arithmetic::Matrix::kUnits;
    }
    return arithmetic;
}

std::string ArithmeticText(const Arithmetic& arithmetic) {
    std::string text = "float32";
    if (arithmetic.integer) text += ", int8";
    if (arithmetic.matrix != Arithmetic::Matrix::kNone) text += ", f16 on matrix units";
    return text;
}

void TakeOfHost(const gpu::Description& gpu, std::optional<uint64_t> apart_free, uint64_t host_free,
                MemoryPool& pool) {
    const bool amd = gpu.vendor_id == kAmd;
    pool.limited = !amd;
    if (host_free == 0 || (amd && !apart_free)) return;
    pool.free_bytes = std::min(pool.free_bytes, apart_free.value_or(0) + host_free);
}

// The subgroup size distinguishes the processors that run lavapipe. lavapipe's version number is
// the same on all of them, so the driver's text is included.
std::string IdentityOf(const gpu::Description& gpu, bool reference, const Arithmetic& arithmetic) {
    return fmt::format("{}-{:x}-{:x}-{:x}-{}-{:016x}{}{}{}", gpu::ApiName(gpu.api), gpu.vendor_id,
                       gpu.device_id, gpu.driver_version, gpu.subgroup,
                       Checksum64(std::as_bytes(std::span(gpu.driver)), ShaderBuild()),
                       reference ? "-reference" : "", arithmetic.integer ? "-int8" : "",
                       arithmetic.matrix != Arithmetic::Matrix::kNone ? "-f16" : "");
}

Status CheckFits(const MemoryUse& use, const MemoryPool& pool, const gpu::Description& gpu) {
    constexpr double kMiB = 1024.0 * 1024.0;
    const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
    const uint64_t arena = use.arena_bytes - use.host_bytes;
    const uint64_t sum = use.weight_bytes + use.kv_bytes + arena;
    if (pool.free_bytes == 0 || sum <= pool.free_bytes) return {};
    const char* advice =
        gpu.vendor_id == kAmd && gpu.unified
            ? " The BIOS (the carve-out for graphics) and the kernel parameter ttm.pages_limit set "
              "how much of this machine's memory the GPU may use."
            : "";
    return MakeError(
        ErrorCode::kOutOfMemory,
        "{}: weights {:.0f} MiB + KV cache {:.0f} MiB + activations {:.0f} MiB = "
        "{:.0f} MiB ({} bytes), but {:.0f} MiB ({} bytes) of {:.0f} MiB are free.{} "
        "Use a smaller --ctx or --prefill-chunk (weft serve: --step-tokens), a smaller "
        "quantization, or more ranks.",
        gpu.name, mib(use.weight_bytes), mib(use.kv_bytes), mib(arena), mib(sum), sum,
        mib(pool.free_bytes), pool.free_bytes, mib(pool.total_bytes), advice);
}

}  // namespace weft::backend::on_gpu
