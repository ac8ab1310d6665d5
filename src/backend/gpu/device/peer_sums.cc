#include "backend/gpu/device/peer_sums.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "net/offer.h"

namespace weft::backend::on_gpu {
namespace {

constexpr uint32_t kInvocations = 256, kMostGroups = 1024;
constexpr net::OpTag kTag{"the trial of sums through GPU memory"};
constexpr int64_t kTrialMs = 30'000;
constexpr int kRounds = 9;
// The size of a sum of a decode step, and one of a prompt.
constexpr uint64_t kTrialBytes[] = {16 << 10, 4 << 20};

struct WriteArgs {
    uint64_t x, y;
    uint32_t count;
};
struct SumArgs {
    uint64_t windows, y;
    uint32_t ranks, count;
};

template <size_t kBytes>
void Put(std::string_view text, std::array<char, kBytes>& out) {
    std::copy_n(text.begin(), std::min(text.size(), kBytes - 1), out.begin());
}
template <size_t kBytes>
std::string Text(const std::array<char, kBytes>& text) {
    return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

// Values whose sums are rounded.
float TrialValue(uint32_t rank, uint32_t i) {
    const uint32_t mixed = (i * 8 + rank + 1) * 2'654'435'761U;
    return static_cast<float>(mixed >> 8) * 0x1p-20F - 8;
}

void RunOver(gpu::Commands& commands, const gpu::Kernel& kernel, std::span<const std::byte> args,
             uint32_t count) {
    const uint32_t groups = (count + kInvocations - 1) / kInvocations;
    commands.Run(kernel, args, std::clamp(groups, 1U, kMostGroups));
}

}  // namespace

struct PeerSums::Said {
    gpu::SharedHandle handle;
    std::array<char, 24> pci{};
    std::array<char, 48> boot{};
    std::array<char, 256> why{};  // why this rank cannot use windows; "": it can
    uint32_t always = 0;
    Times seconds{};
};

Result<std::unique_ptr<PeerSums>> PeerSums::Make(gpu::Device& device, KernelCache& kernels,
                                                 coll::Comm& comm, uint64_t most_bytes, Use use) {
    std::unique_ptr<PeerSums> sums(new PeerSums(device, comm, most_bytes));
    WEFT_TRY(sums->Begin(kernels, use));
    for (gpu::Buffer* const tried : {&sums->x_, &sums->y_, &sums->host_}) *tried = {};
    if (sums->works()) return sums;
    sums->others_.clear();
    sums->window_ = {};
    return sums;
}

// ---- Recording ----------------------------------------------------------------------------------

void PeerSums::RecordWrite(gpu::Commands& commands, uint64_t x, int half, uint32_t count,
                           Guard guard) const {
    const WriteArgs args{x, Window(half), count};
    RunOver(commands, *write_[static_cast<size_t>(guard)], std::as_bytes(std::span(&args, 1)),
            count);
}

void PeerSums::RecordSum(gpu::Commands& commands, uint64_t y, int half, uint32_t count,
                         Guard guard) const {
    const auto ranks = static_cast<uint32_t>(comm_.size());
    const SumArgs args{table() + sizeof(uint64_t) * ranks * static_cast<uint64_t>(half), y, ranks,
                       count};
    RunOver(commands, *sum_[static_cast<size_t>(guard)], std::as_bytes(std::span(&args, 1)), count);
}

// ---- The trial ----------------------------------------------------------------------------------

Status PeerSums::Begin(KernelCache& kernels, Use use) {
    Said own;
    own.always = use == Use::kAlways ? 1 : 0;
    Put(device_.description().pci, own.pci);
    Put(net::BootId(), own.boot);
    const Status allocated =
        use == Use::kNever
            ? MakeError(ErrorCode::kUsage, "its --gpu-allreduce asks for host memory")
            : Allocate(kernels, own.handle);
    WEFT_ASSIGN(const std::vector<Said> all, Tell(own, allocated));
    const bool together =
        std::ranges::all_of(all, [&](const Said& one) { return one.boot == own.boot; });
    if (works() && !together) why_ = "the ranks are on several hosts";
    if (!works()) return {};
    WEFT_TRY(Tell(own, OpenOthers(all)));
    if (!works()) return {};
    Status differs;
    WEFT_TRY(Try(own.seconds, differs));
    WEFT_ASSIGN(const std::vector<Said> timed, Tell(own, differs));
    if (works()) Decide(timed);
    return {};
}

Status PeerSums::Allocate(KernelCache& kernels, gpu::SharedHandle& handle) {
    WEFT_CHECK(comm_.size() < 256);  // IndexBits
    for (const Guard guard : {Guard::kNone, Guard::kStopWord}) {
        const auto i = static_cast<size_t>(guard);
        WEFT_ASSIGN(write_[i],
                    kernels.Get("hand_over", {kInvocations}, sizeof(WriteArgs), 0, guard));
        WEFT_ASSIGN(sum_[i], kernels.Get("sum_peers", {kInvocations}, sizeof(SumArgs), 0, guard));
    }
    const uint64_t most = std::min(half_bytes_, kTrialBytes[kSizes - 1]);
    WEFT_ASSIGN(x_, device_.Allocate(most, gpu::Place::kDevice));
    WEFT_ASSIGN(y_, device_.Allocate(most, gpu::Place::kDevice));
    WEFT_ASSIGN(host_, device_.Allocate(3 * most, gpu::Place::kHost));
    const auto entries = 2 * static_cast<uint64_t>(comm_.size());
    WEFT_ASSIGN(table_, device_.Allocate(entries * sizeof(uint64_t), gpu::Place::kDevice));
    WEFT_ASSIGN(window_, device_.AllocateShared(2 * half_bytes_, handle));
    return {};
}

// Tells all ranks `own` and the error in `status`. Afterward, all ranks have the same why_.
Result<std::vector<PeerSums::Said>> PeerSums::Tell(Said own, const Status& status) {
    if (!status.ok()) Put(status.error().message, own.why);
    const auto ranks = static_cast<size_t>(comm_.size());
    std::vector<Said> all(ranks);
    all[static_cast<size_t>(comm_.rank())] = own;
    WEFT_TRY(comm_.AllGather(std::as_writable_bytes(std::span(all)),
                             std::vector<size_t>(ranks, sizeof(Said)), kTag));
    for (size_t rank = 0; rank < ranks && works(); ++rank) {
        const std::string why = Text(all[rank].why);
        if (!why.empty()) why_ = fmt::format("tensor rank {}: {}", rank, why);
    }
    return all;
}

Status PeerSums::OpenOthers(std::span<const Said> all) {
    std::vector<uint64_t> windows;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        if (rank == static_cast<size_t>(comm_.rank())) {
            windows.push_back(window_.address());
            continue;
        }
        const Said& other = all[rank];
        WEFT_ASSIGN(gpu::Buffer window,
                    device_.OpenShared(other.handle, Text(other.pci), 2 * half_bytes_));
        windows.push_back(window.address());
        others_.push_back(std::move(window));
    }
    WEFT_ASSIGN(const auto commands, device_.Record());
    uint64_t at = 0;
    for (const uint64_t half : {uint64_t{0}, half_bytes_}) {
        for (const uint64_t window : windows) {
            commands->Fill(table_, at, 4, static_cast<uint32_t>(window + half));
            commands->Fill(table_, at + 4, 4, static_cast<uint32_t>((window + half) >> 32));
            at += sizeof(uint64_t);
        }
    }
    WEFT_TRY(commands->End());
    return Run(*commands);
}

Status PeerSums::Run(const gpu::Commands& commands) {
    WEFT_ASSIGN(const uint64_t number, device_.Submit(commands));
    return device_.Wait(number, Deadline::In(kTrialMs));
}

Status PeerSums::Try(Times& seconds, Status& differs) {
    for (size_t i = 0; i < kSizes; ++i) {
        const Status tried = Compare(std::min(half_bytes_, kTrialBytes[i]), seconds[i], differs);
        if (tried.ok()) continue;
        return MakeError(tried.error().code,
                         "{}. It failed in a trial of sums through GPU memory; --gpu-allreduce "
                         "split does without",
                         tried.error().message);
    }
    return {};
}

// Sums `bytes` in both ways: their median times, and whether the bits differ.
Status PeerSums::Compare(uint64_t bytes, std::array<double, 2>& seconds, Status& differs) {
    const auto count = static_cast<uint32_t>(bytes / sizeof(float));
    const std::span<float> floats(reinterpret_cast<float*>(host_.host()), 3 * size_t{count});
    const std::span<float> summed = floats.subspan(count, count);
    for (uint32_t i = 0; i < count; ++i) {
        floats[i] = TrialValue(static_cast<uint32_t>(comm_.rank()), i);
    }
    const auto record = [&](const auto& fill) -> Result<std::unique_ptr<gpu::Commands>> {
        WEFT_ASSIGN(std::unique_ptr<gpu::Commands> commands, device_.Record());
        commands->Barrier();
        fill(*commands);
        WEFT_TRY(commands->End());
        return commands;
    };
    using Commands = gpu::Commands;
    const auto load = record([&](Commands& to) { to.Copy(host_, 0, x_, 0, bytes); });
    const auto out = record([&](Commands& to) { to.Copy(x_, 0, host_, bytes, bytes); });
    const auto in = record([&](Commands& to) { to.Copy(host_, bytes, y_, 0, bytes); });
    const auto write =
        record([&](Commands& to) { RecordWrite(to, x_.address(), 0, count, Guard::kNone); });
    const auto sum =
        record([&](Commands& to) { RecordSum(to, y_.address(), 0, count, Guard::kNone); });
    const auto back = record([&](Commands& to) { to.Copy(y_, 0, host_, 2 * bytes, bytes); });
    for (const auto* commands : {&load, &out, &in, &write, &sum, &back}) {
        if (!commands->ok()) return commands->error();
    }
    WEFT_TRY(Run(**load));
    std::array<std::vector<double>, 2> times;
    for (int round = 0; round < kRounds; ++round) {
        WEFT_TRY(comm_.Barrier(kTag));
        int64_t begin_ns = NowNs();
        WEFT_TRY(Run(**out));
        WEFT_TRY(comm_.AllReduce(summed, kTag));
        WEFT_TRY(Run(**in));
        times[0].push_back(SecondsSince(begin_ns));
        WEFT_TRY(comm_.Barrier(kTag));
        begin_ns = NowNs();
        WEFT_TRY(Run(**write));
        WEFT_TRY(comm_.Barrier(kTag));
        WEFT_TRY(Run(**sum));
        times[1].push_back(SecondsSince(begin_ns));
    }
    for (size_t way = 0; way < times.size(); ++way) {
        std::ranges::sort(times[way]);
        seconds[way] = times[way][kRounds / 2];
    }
    WEFT_TRY(Run(**back));
    WEFT_TRY(Run(**out));
    WEFT_TRY(comm_.AllReduce(summed, kTag, {.algorithm = coll::Algorithm::kOneShot}));
    if (std::memcmp(summed.data(), summed.data() + count, bytes) != 0) {
        differs = MakeError(ErrorCode::kCorrupt,
                            "sums of {} through GPU memory were wrong (an IOMMU or PCIe's access "
                            "control services may be in the way)",
                            BytesText(bytes));
    }
    return {};
}

// The slowest rank counts.
void PeerSums::Decide(std::span<const Said> all) {
    std::array<bool, kSizes> faster{};
    for (size_t i = 0; i < kSizes; ++i) {
        std::array<double, 2> slowest{};
        for (const Said& one : all) {
            for (size_t way = 0; way < slowest.size(); ++way)
                slowest[way] = std::max(slowest[way], one.seconds[i][way]);
        }
        faster[i] = slowest[1] < slowest[0];
        times_ += fmt::format(
            "{}{} in {:.0f} us (through host memory {:.0f})", times_.empty() ? "" : ", ",
            BytesText(std::min(half_bytes_, kTrialBytes[i])), 1e6 * slowest[1], 1e6 * slowest[0]);
    }
    const bool always = std::ranges::any_of(all, [](const Said& one) { return one.always != 0; });
    least_bytes_ = always || faster[0] ? 0 : kTrialBytes[0] + 1;
    most_bytes_ = always || faster[1] ? half_bytes_ : kTrialBytes[0];
    if (least_bytes_ > most_bytes_) why_ = "sums through host memory are faster: " + times_;
}

}  // namespace weft::backend::on_gpu
