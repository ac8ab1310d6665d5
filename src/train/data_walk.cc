#include "train/data_walk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/log.h"
#include "train/batch_ahead.h"
#include "train/process_work.h"

namespace weft::train {
namespace {

// Since the last work of a rank that is late (ProcessWork).
constexpr int64_t kWalkMs = 3'600'000;

// Reports the progress of a long walk.
class WalkProgress {
  public:
    WalkProgress(bool says, std::string_view what, uint64_t records)
        : what_(what), records_(records), next_ns_(says ? begin_ns_ + kFirstNs : INT64_MAX) {}

    void Tell(const LoaderCounts& counts) {
        if (NowNs() < next_ns_) return;
        const uint64_t seen = counts.records();
        if (seen == 0) return;
        const double rate = static_cast<double>(seen) / SecondsSince(begin_ns_);
        Log(LogLevel::kInfo, "{}: {} of {} records, {:.0f} a second, {:.0f} s left", what_, seen,
            records_, rate, static_cast<double>(records_ - std::min(records_, seen)) / rate);
        next_ns_ = NowNs() + kEachNs;
    }

  private:
    static constexpr int64_t kFirstNs = 2'000'000'000, kEachNs = 10'000'000'000;
    const std::string_view what_;
    const uint64_t records_;
    const int64_t begin_ns_ = NowNs();
    int64_t next_ns_;
};

}  // namespace

int64_t GlobalBatch(const TrainJob& job, const TrainLayout& layout) {
    if (job.global_batch > 0) return job.global_batch;
    return job.trainer.micro_batch * job.trainer.accumulation * layout.streams();
}

Result<Loader> OpenLoader(const TrainJob& job, const TrainLayout& layout, const OpenedData& data) {
    LoaderOptions options = data.loader;
    options.global_batch = GlobalBatch(job, layout);
    const GrpoOptions& grpo = job.trainer.grpo;
    if (grpo.on) {  // (Each rank has all prompts.)
        if (options.global_batch % grpo.group != 0) {
            return MakeError(ErrorCode::kUsage,
                             "--group {} with {} completions an update (--micro-batch x "
                             "--grad-accum x replicas): expected a multiple of the group",
                             grpo.group, options.global_batch);
        }
        options.global_batch /= grpo.group;
    } else {
        options.rank = layout.stream();
        options.ranks = layout.streams();
    }
    options.epochs = job.steps > 0 ? 0 : static_cast<uint64_t>(job.epochs);
    return Loader::Make(*data.set, options);
}

Result<Loader> OpenTestLoader(const TrainJob& job, const TrainLayout& layout,
                              const OpenedData& data) {
    LoaderOptions options = data.loader;
    options.part = Part::kTest;
    options.mixture.reset();
    options.shuffle = false;
    options.rank = layout.stream();
    options.ranks = layout.streams();
    options.global_batch = GlobalBatch(job, layout);
    options.epochs = 1;
    return Loader::Make(*data.set, options);
}

Result<int64_t> DataWalk::CountUpdates(int64_t done, Loader loader) {
    if (job_.steps > 0) return job_.steps;
    const Cursor from = loader.cursor();
    const GrpoOptions& grpo = job_.trainer.grpo;
    const auto batch =
        static_cast<uint64_t>(GlobalBatch(job_, layout_) / (grpo.on ? grpo.group : 1));
    const uint64_t size = data_.set->size(Part::kTrain);
    const uint64_t all = size * static_cast<uint64_t>(job_.epochs);
    const uint64_t before = std::min(all, size * from.epoch + from.index);
    loader.CountOnly();
    WEFT_ASSIGN(const int64_t rest,
                Walk(loader, job_.drop_last ? batch : 1,
                     "tokenizing the data to count the updates (not needed with --steps)",
                     std::min(size, all - before)));
    counts_ = loader.first_epoch() ? *loader.first_epoch() : loader.counts();
    // (The next waits among ranks have shorter timeouts.)
    WEFT_TRY(cluster_.Barrier("updates are counted", Deadline::In(kWalkMs)));
    if (rest > 0 || from != Cursor{}) return done + rest * (grpo.on ? grpo.iterations : 1);
    return MakeError(ErrorCode::kUsage,
                     "{} epochs of the data are less than one batch of {} sequences, and the last "
                     "batch is to be dropped. Use smaller batches",
                     job_.epochs, batch);
}

Result<LoaderCounts> DataWalk::CheckTestPart() {
    WEFT_ASSIGN(Loader loader, OpenTestLoader(job_, layout_, data_));
    WEFT_ASSIGN(const int64_t batches,
                Walk(loader, 1, "reading the test part", data_.set->size(Part::kTest)));
    WEFT_CHECK(batches > 0);  // otherwise the loader has reported it
    return loader.counts();
}

Result<int64_t> DataWalk::Walk(Loader& loader, uint64_t least, std::string_view what,
                               uint64_t records) {
    loader.ReadOn(ReadingCores(cluster_, job_.trainer.threads));
    cluster_.SetProgress(ProcessWork);
    WalkProgress progress(cluster_.rank() == 0, what, records);
    for (int64_t batches = 0;; ++batches) {
        progress.Tell(loader.counts());
        if (cluster_.stop_requested()) {
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        }
        WEFT_TRY(check_time_(what));
        WEFT_ASSIGN(const auto batch, loader.Next());
        if (cluster_.rank() == 0) LogDataNote(*data_.set);
        // (Only the last batch is ever filled up.)
        if (!batch || batch->global_sequences < least) return batches;
    }
}

void LogDataNote(const DataSet& data) {
    const std::string note = data.TakeNote();
    if (!note.empty()) Log(LogLevel::kInfo, "{}", note);
}

std::string LeftOutText(const LoaderCounts& counts, const TrainJob& job, Part part) {
    const int64_t sequence = job.data.sequence;
    const bool may_split = FindLoss(job.data.loss) == LossKind::kTokens;
    std::vector<std::string> whys;
    if (counts.bad > 0) {
        whys.push_back(fmt::format("{} can't be used (first: {})", counts.bad, counts.first_bad));
    }
    if (counts.too_long > 0) {
        whys.push_back(fmt::format("{} are longer than --seq-len {}", counts.too_long, sequence));
    }
    if (counts.cut_off > 0) {
        whys.push_back(fmt::format(
            "{} have nothing to learn within --seq-len {} (the shortest "
            "needs {})",
            counts.cut_off, sequence, counts.needed + static_cast<uint64_t>(job.data.completion)));
    }
    if (counts.no_loss > counts.cut_off) {
        whys.push_back(fmt::format("{} have nothing to learn", counts.no_loss - counts.cut_off));
    }
    std::string text;
    if (!whys.empty()) {
        text = fmt::format("{} of {} samples are left out: {}", counts.left_out(), counts.all(),
                           fmt::join(whys, ", "));
    }
    if (counts.truncated > 0) {
        text += fmt::format(
            "{}{} of {} samples are longer than --seq-len {} and lose their end: a larger "
            "--seq-len {}",
            text.empty() ? "" : ". ", counts.truncated, counts.all(), sequence,
            may_split ? "or --long split keeps it" : "keeps it, --long skip leaves them out");
    }
    if (text.empty()) return "";
    const std::string_view of = part == Part::kTest ? ", test part" : "";
    return fmt::format("{}{}: {}", DataName(job.data), of, text);
}

}  // namespace weft::train
