// Rank::WarmUp: runs steps of the usual sizes, so that GPUs compile their kernels before the first
// request. (Compilation takes up to minutes, and requests would wait for it.)
#include <algorithm>
#include <vector>

#include "base/log.h"
#include "engine/rank/rank.h"

namespace weft::engine {
namespace {

constexpr int64_t kMaxSequences = 128;
constexpr int64_t kShort = 8;
constexpr int64_t kFarPosition = 255;  // attention over many positions has kernels of its own
constexpr int32_t kCandidates = 40;    // for sampling; the best one alone has a kernel of its own
constexpr int64_t kAgreeMs = 600'000;  // the others may still load or compile
constexpr int64_t kTellNs = 5'000'000'000;

// A step: sequences with the same number of rows each.
struct Shape {
    int64_t sequences = 1, rows = 1, position = 0;
    int32_t adapter = 0;
};

// The limits of a job's steps.
struct MostOfStep {
    int64_t sequences = 1, rows = 1, positions = 1;
};

void AddShapes(const MostOfStep& most, int64_t position, int32_t adapter,
               std::vector<Shape>& shapes) {
    for (int64_t n = 1; n < 2 * most.sequences; n *= 2) {
        shapes.push_back({std::min(n, most.sequences), 1, position, adapter});
    }
    // GPUs have kernels for 16, 32, 64, 128 and more rows.
    for (const int64_t rows : {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}, most.rows}) {
        if (rows > most.rows || position + rows > most.positions) continue;
        shapes.push_back({1, rows, position, adapter});
    }
}

}  // namespace

void Rank::SetWarmUpStep(int64_t sequences, int64_t rows, int64_t position, int32_t adapter,
                         StepData& step) const {
    step.Clear();
    step.number = 0;
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    const int64_t pages = kv_pages_ == 0 ? 0 : (position + rows - 1) / page_tokens() + 1;
    for (int64_t i = 0; i < sequences; ++i) {
        StepData::Sequence sequence;
        sequence.pages.assign(static_cast<size_t>(pages), static_cast<int32_t>(i));
        sequence.adapter = adapter;
        sequence.state_to = hyper_.has_state() ? static_cast<int32_t>(i) : -1;
        sequence.prompt_rows = rows > 1 ? static_cast<int32_t>(rows) : 0;
        step.Append(tokens, position, std::move(sequence));
        step.output_rows.push_back(static_cast<int32_t>(step.tokens.size()) - 1);
    }
    if (logits_ == program::kNoValue || cluster_.rank() != 0 || shard_.layout.pp > 1) return;
    step.wanted.columns = hyper_.vocab;
    const bool samples = sequences % 2 == 0 || rows > 1;
    step.wanted.top = samples ? std::min(kCandidates, static_cast<int32_t>(hyper_.vocab)) : 1;
}

Status Rank::WarmUp() {
    if (!job_.warm_up || job_.weights_on_drive) return {};
    const backend::DeviceInfo& device = device_->info();
    const bool needs = device.submits && !device.uses_host_cores && !warm_;
    // If a processor computes layers or experts, long steps would take minutes.
    const bool slow = device.uses_host_cores || host_ops_.any();
    const std::string mine = fmt::format("{}{}", needs ? "+" : "-", slow ? "slow" : "");
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("warm-up", mine, Deadline::In(kAgreeMs)));
    const auto any = [&](char letter) {
        return std::ranges::any_of(
            all, [&](const std::string& one) { return one.find(letter) != std::string::npos; });
    };
    if (!any('+')) return {};
    cluster_.SetPhase("warm-up");
    MostOfStep most{std::min({kMaxSequences, job_.max_outputs, job_.step_rows()}),
                    std::min(job_.step_rows(), job_.ctx), job_.ctx};
    if (any('s')) most.sequences = std::min(most.sequences, kShort);
    if (any('s')) most.rows = std::min(most.rows, kShort);
    if (kv_pages_ > 0) most.sequences = std::min(most.sequences, kv_pages_);
    if (hyper_.has_state()) most.sequences = std::min(most.sequences, job_.state_slots);
    std::vector<Shape> shapes;
    for (const int32_t adapter : {0, 1}) {
        if (adapter > std::ssize(job_.adapters)) break;
        AddShapes(most, 0, adapter, shapes);
        if (kFarPosition < job_.ctx && !hyper_.encoder)
            AddShapes(most, kFarPosition, adapter, shapes);
    }
    const int64_t begin_ns = NowNs();
    int64_t told_ns = begin_ns;
    StepData step;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const Shape& shape = shapes[i];
        WEFT_TRY(CheckStop());
        SetWarmUpStep(shape.sequences, shape.rows, shape.position, shape.adapter, step);
        WEFT_TRY(executable_->Run(head_.step, ViewOf(step), StepGroups(step)));
        if (cluster_.rank() != 0 || NowNs() - told_ns < kTellNs) continue;
        told_ns = NowNs();
        Log(LogLevel::kInfo, "warm-up: {} of {} steps have run", i + 1, shapes.size());
    }
    warm_ = true;
    Log(LogLevel::kDebug, "warm-up: {} steps in {:.1f} s", shapes.size(), SecondsSince(begin_ns));
    return {};
}

}  // namespace weft::engine
