// A rank's part in keeping pages outside of the devices' memory. See page_store/rank_pages.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "engine/page_store/rank_pages.h"
#include "engine/rank/rank.h"
#include "engine/rank/sum_wire.h"
#include "model_files/lora/adapted_source.h"

namespace weft::engine {
namespace {

// Each rank reads the pages of one message meanwhile, perhaps over a network.
constexpr int64_t kLeastRestoreMs = 60'000;
constexpr int64_t kAgreeMs = 600'000;

// All on which the bits of a rank's pages depend, besides the model's file and the other ranks.
std::string ShardText(const program::Program& program, int rank, const backend::DeviceInfo& device,
                      const model::Hyper& hyper, int64_t context) {
    std::string text = fmt::format("{}\n{}\n{}", rank, device.identity, program::Print(program));
    for (const bool has_window : {false, true}) {
        const model::Rope& rope = hyper.ropes.Of(has_window, context);
        text += fmt::format("{:a}", rope.magnitude);
        for (const float one : rope.inverse_frequency) text += fmt::format(" {:a}", one);
    }
    return text;
}

}  // namespace

// Opens the tiers in the first epoch.
Status Rank::EnterPages() {
    if (!job_.keeps_pages() || pages_ != nullptr) return {};
    auto opened = RankPages::Open(job_);
    if (!opened.ok()) {
        return MakeError(opened.error().code, "rank {} (host {}): {}", cluster_.rank(),
                         cluster_.host(cluster_.rank()).name, opened.error().message);
    }
    pages_ = *std::move(opened);
    return {};
}

// All ranks have the hashes of all shares, and rank 0 the keys. (Without a folder, the model may be
// unknown; its pages then end with the process.)
Status Rank::NamePages() {
    if (pages_ == nullptr) return {};
    const std::string text =
        ShardText(program_, cluster_.rank(), device_->info(), hyper_, job_.ctx);
    const Sha256Digest shard = Sha256(std::as_bytes(std::span(text)));
    pages_->Use(*executable_, page_tokens(), shard);
    WEFT_ASSIGN(const std::vector<std::string> shards,
                cluster_.AllGather("kept pages", Hex(shard), Deadline::In(kAgreeMs)));
    if (cluster_.rank() != 0) return {};
    const std::string job = fmt::format(
        "{} {} {} {} {} {} {}", identity_.model, WEFT_VERSION, SumWireName(wire_),
        SumWireName(prompt_wire_), OverlapName(job_.overlap), job_.exact, fmt::join(shards, " "));
    page_keys_.emplace(job, identity_.adapters, page_tokens());
    Log(LogLevel::kInfo, "{}", pages_->Text());
    return {};
}

// Steps arrive over the wire.
Status Rank::CheckKeyed(const StepData& step) const {
    const int64_t slots = hyper_.has_state() ? job_.state_slots : 0;
    const auto fits = [&](const KeyedPage& page) {
        return page.place >= 0 && page.place < (page.is_state ? slots : kv_pages_);
    };
    const bool good = pages_ != nullptr && std::ranges::all_of(step.keyed, fits);
    if (good || step.keyed.empty()) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "step {} from rank 0 names pages that this rank's KV cache does not have. Run "
                     "the same build of Weft on all hosts",
                     step.number);
}

// kRestore: the number of first pages that all ranks filled.
Result<int64_t> Rank::RunKeyed(const StepData& step) {
    if (cluster_.rank() == 0) WEFT_TRY(steps_.Send(step));
    WEFT_TRY(CheckKeyed(step));
    if (pages_ == nullptr || step.keyed.empty()) return 0;
    if (step.kind == StepKind::kSave) {
        WEFT_TRY(pages_->Save(step.keyed));
        return 0;
    }
    WEFT_ASSIGN(int64_t filled, pages_->Restore(step.keyed, loaded_));
    if (cluster_.size() == 1) return filled;
    WEFT_ASSIGN(
        const std::vector<std::string> all,
        cluster_.AllGather("filled pages", std::to_string(filled), WaitForRanks(kLeastRestoreMs)));
    for (const std::string& one : all) {
        filled = std::min<int64_t>(filled, std::strtoll(one.c_str(), nullptr, 10));
    }
    return std::max<int64_t>(filled, 0);
}

Status Rank::SavePages(int64_t step_number, std::vector<KeyedPage> pages) {
    StepData step;
    step.kind = StepKind::kSave;
    step.number = step_number;
    step.keyed = std::move(pages);
    const auto saved = RunKeyed(step);
    return saved.ok() ? Status() : Status(saved.error());
}

Result<int64_t> Rank::RestorePages(int64_t step_number, std::vector<KeyedPage> pages) {
    StepData step;
    step.kind = StepKind::kRestore;
    step.number = step_number;
    step.keyed = std::move(pages);
    return RunKeyed(step);
}

}  // namespace weft::engine
