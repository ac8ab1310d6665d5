// A rank's part in saving and restoring slots. See page_store/slot_file.h.
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "engine/page_store/rank_pages.h"
#include "engine/rank/rank.h"

namespace weft::engine {
namespace {

// Each rank reads or writes a file of perhaps many gigabytes meanwhile.
constexpr int64_t kSlotMs = 3'600'000;

Sha256Digest DigestOf(std::string_view text) {
    return Sha256(std::as_bytes(std::span(text)));
}

// The files of a save belong together, and each to its rank.
Sha256Digest SetOfRank(const Sha256Digest& set, int rank) {
    if (rank == 0) return set;
    return DigestOf(std::string(set.begin(), set.end()) + std::to_string(rank));
}

// The sum of `mine` over the ranks of this host.
Result<int64_t> SumOfHost(cluster::Cluster& cluster, int64_t mine) {
    if (cluster.size() == 1) return mine;
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster.AllGather("slot size", std::to_string(mine), Deadline::In(kSlotMs)));
    int64_t sum = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        const std::string& host = cluster.host(static_cast<int>(rank)).boot_id;
        const bool here = host == cluster.host(cluster.rank()).boot_id;
        if (here) sum += std::strtoll(all[rank].c_str(), nullptr, 10);
    }
    return sum;
}

}  // namespace

// The outcome of all ranks. Text of a rank: the error's code and message, or 0 and the bytes.
Result<Rank::SlotResult> Rank::AgreeOnSlot(const SlotResult& mine) {
    if (cluster_.size() == 1) return mine;
    const std::string text =
        mine.error ? fmt::format("{} {}", static_cast<int>(mine.error->code), mine.error->message)
                   : fmt::format("-1 {}", mine.bytes);
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("slot", text, Deadline::In(kSlotMs)));
    SlotResult result;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        char* end = nullptr;
        const int64_t code = std::strtoll(all[rank].c_str(), &end, 10);
        if (code < 0) {
            result.bytes += std::strtoll(end, nullptr, 10);
        } else if (!result.error) {
            const int at = static_cast<int>(rank);
            result.error = MakeError(code <= static_cast<int>(ErrorCode::kCancelled)
                                         ? static_cast<ErrorCode>(code)
                                         : ErrorCode::kIo,
                                     "rank {} (host {}):{}", at, cluster_.host(at).name, end);
        }
    }
    return result;
}

Result<Rank::SlotResult> Rank::RunSlot(const StepData& step, SlotHead head) {
    if (cluster_.rank() == 0) WEFT_TRY(steps_.Send(step));
    WEFT_TRY(CheckKeyed(step));
    if (pages_ == nullptr || !pages_->has_slots() || step.keyed.empty() || !IsSlotName(step.name)) {
        return MakeError(ErrorCode::kCorrupt,
                         "step {} from rank 0 names a slot's file that this rank cannot have. Run "
                         "the same build of Weft on all hosts",
                         step.number);
    }
    const std::span<const KeyedPage> pages = std::span(step.keyed).subspan(1);
    head.set = SetOfRank(step.keyed[0].key, cluster_.rank());
    if (step.kind == StepKind::kLoadSlot) {
        const std::string path = pages_->SlotPath(step.name, cluster_.rank());
        const auto loaded = pages_->LoadSlot(path, head.set, pages, loaded_);
        return AgreeOnSlot({loaded.bytes, loaded.error});
    }
    WEFT_ASSIGN(const int64_t bytes, SumOfHost(cluster_, pages_->SizeSlot(pages, head)));
    WEFT_ASSIGN(auto saved,
                pages_->SaveSlot(step.name, cluster_.rank(), bytes, head, pages, loaded_));
    WEFT_ASSIGN(const SlotResult all, AgreeOnSlot({saved.bytes, saved.error}));
    if (all.error) return all;  // each rank keeps its file of an earlier save
    const Status finished = saved.written->Finish();
    return AgreeOnSlot(
        {saved.bytes, finished.ok() ? std::nullopt : std::optional(finished.error())});
}

Result<Rank::SlotResult> Rank::SaveSlot(int64_t step_number, const std::string& name,
                                        std::vector<int32_t> tokens, int32_t adapter,
                                        std::vector<KeyedPage> pages) {
    SlotHead head;
    head.model = DigestOf(identity_.model);
    head.job = page_keys_->Identity(adapter);
    head.adapter = adapter;
    head.tokens = std::move(tokens);
    std::string all(head.job.begin(), head.job.end());
    for (const int32_t token : head.tokens) all += fmt::format(" {}", token);
    StepData step;
    step.kind = StepKind::kSaveSlot;
    step.number = step_number;
    step.name = name;
    step.keyed = std::move(pages);
    step.keyed.insert(step.keyed.begin(), {DigestOf(all), 0, false});
    return RunSlot(step, std::move(head));
}

Result<SlotHead> Rank::ReadSlot(const std::string& name) const {
    WEFT_ASSIGN(const auto file, SlotFile::Open(pages_->SlotPath(name, 0)));
    const SlotHead& head = file->head();
    if (head.model != DigestOf(identity_.model)) {
        return MakeError(ErrorCode::kUsage,
                         "the file was saved with another model. Serve that model, or save the "
                         "slot again with this one");
    }
    const auto adapters = static_cast<int64_t>(job_.adapters.size());
    if (head.adapter < 0 || head.adapter > adapters ||
        head.job != page_keys_->Identity(static_cast<int32_t>(head.adapter))) {
        return MakeError(ErrorCode::kUsage,
                         "the file was saved with the same model, but with another layout, "
                         "device, KV type, adapter or version of Weft, so its pages have other "
                         "bits. Start the server as it was then, or save the slot again");
    }
    if (head.pages * page_tokens() > std::ssize(head.tokens)) {
        return MakeError(ErrorCode::kCorrupt, "the file is damaged: it has {} pages of {} tokens",
                         head.pages, head.tokens.size());
    }
    return head;
}

Result<Rank::SlotResult> Rank::LoadSlot(int64_t step_number, const std::string& name,
                                        const SlotHead& head, std::vector<KeyedPage> pages) {
    StepData step;
    step.kind = StepKind::kLoadSlot;
    step.number = step_number;
    step.name = name;
    step.keyed = std::move(pages);
    step.keyed.insert(step.keyed.begin(), {head.set, 0, false});
    return RunSlot(step, {});
}

}  // namespace weft::engine
