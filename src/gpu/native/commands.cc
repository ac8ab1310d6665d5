// Recordings: lists of calls, which Submit gives to the stream, either one after another or as a
// graph. The stream runs them in order, so a barrier needs no call.
//
// A driver's queue has a bound (CUDA: some 1,024 launches), and a launch into a full queue blocks.
// A submission whose first kernel waits for the host must not do that, since the blocked thread is
// the one that answers the kernel. A graph takes one entry. It also takes less of the host's time
// per launch, but its creation takes more, so a recording becomes a graph when it is submitted
// again, or does not fit into the queue.
#include <algorithm>
#include <cstring>
#include <variant>

#include "gpu/native/core.h"

namespace weft::gpu::native {
namespace {

constexpr int kDefaultKind = 4;  // hipMemcpyDefault: the driver decides by the addresses
constexpr int kRelaxed = 2;      // a capture that does not restrict calls of other threads
constexpr size_t kMostQueued = 512;

struct RunStep {
    const Kernel* kernel;
    KernelHandles handles;
    WorkgroupCounts groups;
    std::array<std::byte, kMostArgsBytes> args;
};
struct CopyStep {
    Address to, from;
    uint64_t bytes;
};
struct FillStep {
    Address to;
    uint64_t words;
    uint32_t word;
};
struct TimeStep {
    Handle event;
};
using Step = std::variant<RunStep, CopyStep, FillStep, TimeStep>;

class CommandsOfCore : public Commands {
  public:
    CommandsOfCore(std::shared_ptr<Core> core, Address stop_word)
        : core_(std::move(core)), stop_word_(stop_word) {}
    CommandsOfCore(const CommandsOfCore&) = delete;
    CommandsOfCore& operator=(const CommandsOfCore&) = delete;
    ~CommandsOfCore() override {
        if ((times_.empty() && graph_ == nullptr) || !core_->Settled(submission_)) return;
        static_cast<void>(core_->Enter());
        if (graph_ != nullptr) static_cast<void>(core_->calls.DestroyInstance(graph_));
        for (const Handle event : times_)
            if (event != nullptr) static_cast<void>(core_->calls.DestroyEvent(event));
    }

    using Commands::Run;
    void Run(const Kernel& kernel, std::span<const std::byte> args,
             const WorkgroupCounts& groups) override {
        const KernelHandles handles = HandlesOf(kernel);
        WEFT_CHECK(!ended_ && args.size() == handles.args_bytes);
        if (std::ranges::count(groups.count, 0u) > 0) return;
        if (Status fits = CheckGroups(core_->found.description, core_->Who(), groups); !fits.ok()) {
            failed_ = std::move(fits);
            return;
        }
        RunStep step{&kernel, handles, groups, {}};
        std::memcpy(step.args.data(), args.data(), args.size());
        steps_.emplace_back(step);
    }
    void Copy(const Buffer& from, uint64_t from_byte, const Buffer& to, uint64_t to_byte,
              uint64_t bytes) override {
        WEFT_CHECK(!ended_ && from_byte + bytes <= from.size_bytes() &&
                   to_byte + bytes <= to.size_bytes());
        if (bytes == 0) return;
        steps_.emplace_back(CopyStep{to.address() + to_byte, from.address() + from_byte, bytes});
    }
    void Fill(const Buffer& buffer, uint64_t byte, uint64_t bytes, uint32_t word) override {
        WEFT_CHECK(!ended_ && byte % 4 == 0 && bytes % 4 == 0 &&
                   byte + bytes <= buffer.size_bytes());
        if (bytes == 0) return;
        steps_.emplace_back(FillStep{buffer.address() + byte, bytes / 4, word});
    }
    void Barrier() override {}
    void Time(uint32_t i) override {
        WEFT_CHECK(!ended_ && i < kMostTimes);
        if (!failed_.ok()) return;
        const Result<Handle> event = core_->TakeEvent(true);
        if (!event.ok()) {
            failed_ = event.error();
            return;
        }
        times_.resize(std::max<size_t>(times_.size(), i + 1));
        times_[i] = *event;
        steps_.emplace_back(TimeStep{*event});
    }
    Status End() override {
        WEFT_CHECK(!ended_);
        WEFT_TRY(failed_);
        for (Step& step : steps_) {
            auto* const run = std::get_if<RunStep>(&step);
            if (run == nullptr) continue;
            WEFT_TRY(LoadKernel(*run->kernel));
            run->handles = HandlesOf(*run->kernel);
        }
        ended_ = true;
        return {};
    }

    Status Submit();
    std::vector<int64_t> Times(uint32_t count) const;

  private:
    // Gives all calls to the stream.
    Status Give();
    // Makes the graph, whose calls the stream does not run meanwhile.
    Status MakeGraph();
    Code Do(RunStep& step);
    Code Do(const CopyStep& step);
    Code Do(const FillStep& step) {
        return core_->calls.Fill(step.to, step.word, step.words, core_->stream);
    }
    Code Do(const TimeStep& step) { return core_->calls.RecordEvent(step.event, core_->stream); }
    std::shared_ptr<Core> core_;
    Address stop_word_;
    std::vector<Step> steps_;
    std::vector<Handle> times_;
    Handle graph_ = nullptr;  // instantiated
    uint64_t submission_ = 0;
    Status failed_;
    bool ended_ = false;
};

Code CommandsOfCore::Do(RunStep& step) {
    const auto& count = step.groups.count;
    void* params[] = {step.args.data(), step.groups.first.data(), &stop_word_};
    return core_->calls.Launch(step.handles.function, count[0], count[1], count[2],
                               step.handles.invocations, 1, 1, 0, core_->stream, params, nullptr);
}

Code CommandsOfCore::Do(const CopyStep& step) {
    const Calls& calls = core_->calls;
    if (calls.Copy != nullptr) return calls.Copy(step.to, step.from, step.bytes, core_->stream);
    return calls.CopyOfKind(step.to, step.from, step.bytes, kDefaultKind, core_->stream);
}

Status CommandsOfCore::Submit() {
    WEFT_CHECK(ended_ && submission_ <= core_->done);  // otherwise it may still be running
    // In a graph, events have no times.
    const bool again = submission_ > 0;
    const bool fits = core_->QueuedPlaces() + steps_.size() <= kMostQueued;
    if (graph_ == nullptr && times_.empty() && (again || !fits)) WEFT_TRY(MakeGraph());
    WEFT_ASSIGN(const Handle end, core_->TakeEvent(false));
    const Status given =
        graph_ == nullptr
            ? Give()
            : core_->Check("LaunchGraph", core_->calls.LaunchGraph(graph_, core_->stream));
    // Also after an error: what the stream got already runs, and objects must outlive it.
    const Status ended = core_->EndSubmission(end, graph_ == nullptr ? steps_.size() : 1);
    submission_ = core_->submitted;
    WEFT_TRY(given);
    return ended;
}

Status CommandsOfCore::Give() {
    constexpr const char* kCalls[] = {"Launch", "Copy", "Fill", "RecordEvent"};
    for (Step& step : steps_) {
        const Code code = std::visit([&](auto& one) { return Do(one); }, step);
        WEFT_TRY(core_->Check(kCalls[step.index()], code));
    }
    return {};
}

Status CommandsOfCore::MakeGraph() {
    const Calls& calls = core_->calls;
    WEFT_TRY(core_->Check("BeginCapture", calls.BeginCapture(core_->stream, kRelaxed)));
    Status made = Give();
    Handle captured = nullptr, graph = nullptr;
    const Code ended = calls.EndCapture(core_->stream, &captured);
    if (made.ok()) made = core_->Check("EndCapture", ended);
    if (made.ok()) made = core_->Check("Instantiate", calls.Instantiate(&graph, captured, 0));
    if (captured != nullptr) static_cast<void>(calls.DestroyGraph(captured));
    WEFT_TRY(made);
    graph_ = graph;
    return {};
}

std::vector<int64_t> CommandsOfCore::Times(uint32_t count) const {
    if (count == 0 || count > times_.size() || submission_ == 0 || submission_ > core_->done)
        return {};
    if (!core_->Enter().ok()) return {};
    std::vector<int64_t> times;
    for (uint32_t i = 0; i < count; ++i) {
        float ms = 0;
        if (times_[i] == nullptr || times_[0] == nullptr) return {};
        const Code code = core_->calls.GetElapsed(&ms, times_[0], times_[i]);
        if (!core_->Check("GetElapsed", code).ok()) return {};
        times.push_back(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
    }
    return times;
}

}  // namespace

std::unique_ptr<Commands> RecordOn(std::shared_ptr<Core> core, Address stop_word) {
    return std::make_unique<CommandsOfCore>(std::move(core), stop_word);
}

Status SubmitOn(const Commands& commands) {
    // Only the record of submissions changes, not the commands.
    return const_cast<CommandsOfCore&>(static_cast<const CommandsOfCore&>(commands)).Submit();
}

std::vector<int64_t> TimesOf(const Commands& commands, uint32_t count) {
    return static_cast<const CommandsOfCore&>(commands).Times(count);
}

}  // namespace weft::gpu::native
