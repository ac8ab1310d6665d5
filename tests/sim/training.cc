#include "sim/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cluster/worker/job_kind.h"
#include "train/checkpoint/reader.h"
#include "train/checkpoint/writer.h"
#include "train/output_folder.h"
#include "train/run.h"

namespace weft::sim {
namespace {

namespace fs = std::filesystem;

constexpr int kUpdates = 8;
constexpr int64_t kBatch = 12;  // sequences per update, over all ranks: divisible by 2, 3 and 4
constexpr int kSaveEvery = 2;
constexpr size_t kWindowBytes = 256 << 10;
// Other numbers of ranks add gradients in another order.
constexpr double kTolerance = 1e-3;

train::TrainJob JobOf(const std::string& model, int replicas) {
    train::TrainJob job;
    job.trainer.model = model;
    job.trainer.threads = 1;
    job.trainer.sequence = job.data.sequence = 8;
    job.trainer.accumulation = kBatch / replicas;
    job.trainer.recompute = "none";
    job.data.data = {"synthetic:random-tokens:9"};
    job.schedule.rate = 1e-3;
    job.steps = kUpdates;
    return job;
}

// Rank 0's listener: compares the losses.
class Teller final : public train::TrainListener {
  public:
    Teller(const std::map<int64_t, double>* undisturbed, Outcome* outcome, int64_t pace_ns)
        : undisturbed_(undisturbed), outcome_(outcome), pace_ns_(pace_ns) {}

    Status OnStart(const train::Trainer&, int64_t next, int64_t, double) override {
        if (first_ == 0) first_ = next;
        if (outcome_ != nullptr) outcome_->steps = next;
        return {};
    }
    void OnStep(const train::StepLine& line) override {
        losses_[line.step] = line.loss;
        if (outcome_ != nullptr) outcome_->steps = line.step + 1;
        if (undisturbed_ != nullptr) {
            const double expected = undisturbed_->at(line.step);
            if (!(std::abs(line.loss - expected) <= kTolerance * expected) && wrong_.empty()) {
                wrong_ = fmt::format("the loss of update {} is {}, expected {}", line.step,
                                     line.loss, expected);
            }
        }
        if (pace_ns_ > 0 && Kernel::Current() != nullptr) Kernel::Current()->Sleep(pace_ns_);
    }
    Status OnTrained(const model_files::ModelSource&, bool) override { return {}; }

    int64_t first() const { return first_; }  // the first update; 0: none
    const std::string& wrong() const { return wrong_; }
    const std::map<int64_t, double>& losses() const { return losses_; }

  private:
    const std::map<int64_t, double>* undisturbed_;
    Outcome* outcome_;
    const int64_t pace_ns_;
    int64_t first_ = 0;
    std::string wrong_;
    std::map<int64_t, double> losses_;
};

class Training final : public Workload {
  public:
    Training(const Plan& plan, std::string model, std::string folder,
             const std::map<int64_t, double>& undisturbed)
        : plan_(plan),
          model_(std::move(model)),
          folder_(std::move(folder)),
          undisturbed_(undisturbed) {
        fs::remove_all(folder_);
        disk.folder = folder_;
    }

    Status RunRoot(const cluster::ClusterOptions& options, bool last, Outcome& outcome) override {
        const int64_t saved = NewestSaved();
        WEFT_ASSIGN(const auto taken, train::OutputFolder::Take({folder_, "auto"}));
        const bool replicas = plan_.elastic || !plan_.tensor;
        train::TrainJob job = JobOf(model_, replicas ? plan_.hosts : 1);
        job.trainer.tp = replicas ? 1 : plan_.hosts;
        job.trainer.zero = plan_.hosts % 2 == 1 ? 2 : 0;
        job.save = {.folder = folder_, .every = kSaveEvery, .resume = "auto"};
        job.save.max_restarts = plan_.recovers() ? 3 : 0;
        Teller teller(&undisturbed_, &outcome, last ? 0 : plan_.pace_ns);
        cluster::ClusterOptions where = options;
        where.window_bytes = kWindowBytes;
        const auto summary = train::RunTraining(where, job, teller);
        wrong_ = teller.wrong();
        if (last && wrong_.empty() && teller.first() <= saved && saved < kUpdates) {
            wrong_ = fmt::format("update {} was saved, but the next job begins with {}", saved,
                                 teller.first());
        }
        if (!summary.ok()) return summary.error();
        outcome.complete = !summary->stopped;
        return {};
    }

    Status RunRank(cluster::Cluster& cluster) override {
        static constexpr const cluster::JobKind* kKinds[] = {&train::kTrainJob};
        return cluster::RunJob(cluster, kKinds);
    }

    std::string Check(const Outcome&) const override {
        if (!wrong_.empty()) return wrong_;
        const int64_t saved = NewestSaved();
        if (saved == 0) return "";
        const auto folders = train::ListCheckpoints(folder_, nullptr);
        if (folders.empty()) return fmt::format("the checkpoint of update {} is lost", saved);
        const auto newest = train::Checkpoint::Open(folders.front());
        if (!newest.ok()) return newest.error().message;
        if (newest->manifest().step < saved) {
            return fmt::format("the checkpoint of update {} is lost; the newest is of {}", saved,
                               newest->manifest().step);
        }
        for (size_t i = 0; i < newest->manifest().files.size(); ++i) {
            if (const Status good = newest->CheckFile(i); !good.ok()) return good.error().message;
        }
        return "";
    }

  private:
    // The newest checkpoint whose manifest got its name; 0: none.
    int64_t NewestSaved() const {
        int64_t newest = 0;
        for (const std::string& path : disk.renamed) {
            if (!path.ends_with(train::kManifestName)) continue;
            const std::string step = fs::path(path).parent_path().filename();
            newest = std::max<int64_t>(newest, std::stoll(step.substr(step.rfind('-') + 1)));
        }
        return newest;
    }

    const Plan plan_;
    const std::string model_, folder_;
    const std::map<int64_t, double>& undisturbed_;
    std::string wrong_;
};

}  // namespace

std::map<int64_t, double> UndisturbedLosses(const std::string& model) {
    Teller teller(nullptr, nullptr, 0);
    const auto summary = train::RunTraining({}, JobOf(model, 1), teller);
    if (!summary.ok()) throw std::runtime_error(summary.error().message);
    return teller.losses();
}

std::unique_ptr<Workload> MakeTraining(const Plan& plan, const std::string& model,
                                       const std::string& folder,
                                       const std::map<int64_t, double>& undisturbed) {
    return std::make_unique<Training>(plan, model, folder, undisturbed);
}

}  // namespace weft::sim
