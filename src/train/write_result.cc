#include "train/write_result.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/deadline.h"
#include "base/log.h"
#include "model_files/gguf_folder.h"
#include "model_files/lora/adapter.h"
#include "model_files/score_head.h"
#include "train/disk_space.h"
#include "train/stop.h"

namespace weft::train {
namespace {

// Waits between attempts; the last one repeats.
constexpr int64_t kTryMs[] = {500, 2000, 5000};
constexpr int kQuickTries = 3;
constexpr int64_t kTriedLineMs = 60'000;

// Another attempt does not help after wrong options, weights that are not finite, the loss of a
// rank, or a signal to all.
bool MayMend(ErrorCode code) {
    return code != ErrorCode::kUsage && code != ErrorCode::kUnsupported &&
           code != ErrorCode::kCorrupt && code != ErrorCode::kPeerLost &&
           code != ErrorCode::kTimeout && code != ErrorCode::kCancelled;
}

// woken: a signal ends the wait.
void Nap(const Deadline& deadline, bool woken) {
    while (!deadline.expired() && !(woken && StopRequested())) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

}  // namespace

Status CheckInputStays(const TrainerOptions& trainer, const TrainExportOptions& words) {
    if (words.folder.empty()) return {};
    std::string input = trainer.model;
    std::string result = words.folder + (words.format == "hf" ? "/model" : "/model.gguf");
    if (trainer.lora.on()) {
        if (trainer.lora.from.empty()) return {};
        input = model_files::AdapterTensorsPath(trainer.lora.from);
        result = model_files::AdapterTensorsPath(words.folder);
    } else if (model_files::IsGgufFolder(input)) {
        WEFT_ASSIGN(input, model_files::FindGguf(input));
    }
    const auto place = [](std::filesystem::path path) {
        if (!path.has_filename()) path = path.parent_path();
        std::error_code failed;
        const auto canonical = std::filesystem::weakly_canonical(path, failed);
        return failed ? path : canonical;
    };
    if (place(input) != place(result)) return {};
    return MakeError(ErrorCode::kUsage,
                     "--output-dir {}: the result would replace {}, from which the job starts and "
                     "which --resume reads again. Name another folder",
                     words.folder, input);
}

WritingScope::WritingScope(cluster::Cluster& cluster)
    : cluster_(cluster), pinned_(cluster.cores()) {
    cluster_.SetProgress([] { return NowNs(); });
}

WritingScope::~WritingScope() {
    cluster_.SetProgress(nullptr);
}

Result<ResultPlan> PlanAdapterResult(const Trainer& trainer) {
    using model_files::AdapterTask;
    const TrainerOptions& options = trainer.options();
    const bool vectors = options.vectors.loss == LossKind::kContrastive;
    const AdapterTask task = vectors                                       ? AdapterTask::kFeatures
                             : model_files::HasScoreHead(trainer.source()) ? AdapterTask::kScores
                                                                           : AdapterTask::kText;
    ResultPlan plan;
    WEFT_ASSIGN(plan.adapter,
                model_files::PlanAdapter(trainer.source(), trainer.lora(), options.model, task));
    plan.bytes = static_cast<uint64_t>(trainer.state().parameters()) * sizeof(float);
    return plan;
}

Result<std::string> WriteResult(const model_files::ModelSource& trained, const ResultPlan& plan,
                                const TrainExportOptions& words, bool alone) {
    constexpr uint64_t kSlackBytes = 64 << 10;
    auto written = ExportModel(trained, plan, words);
    Deadline quiet = Deadline::In(0);
    for (int tries = 0; !written.ok() && MayMend(written.error().code); ++tries) {
        const bool last = tries >= kQuickTries;
        if (last && (!alone || StopRequested())) break;
        if (quiet.expired()) {
            Log(LogLevel::kWarning, "{}. Weft tries again{}", written.error().message,
                last ? " until the result is written or a signal comes, because no checkpoint has "
                       "the last updates"
                     : "");
        }
        if (last && quiet.expired()) quiet = Deadline::In(kTriedLineMs);
        std::error_code ignored;  // (the folder may have been deleted)
        std::filesystem::create_directories(words.folder, ignored);
        if (!MakeResultSpace(words.folder, plan.bytes + kSlackBytes)) {
            Nap(Deadline::In(kTryMs[std::min(tries, kQuickTries - 1)]), last);
        }
        written = ExportModel(trained, plan, words);
    }
    return written;
}

}  // namespace weft::train
