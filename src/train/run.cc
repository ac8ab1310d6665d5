#include "train/run.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "base/deadline.h"
#include "base/log.h"

namespace weft::train {
namespace {

constexpr int64_t kShutdownMs = 5000;
constexpr int64_t kAgreeMs = 600'000;

double SecondsSince(int64_t begin_ns) {
    return static_cast<double>(NowNs() - begin_ns) * 1e-9;
}

// The most resident memory of this process so far (VmHWM of /proc/self/status).
uint64_t PeakRssBytes() {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("VmHWM:")) continue;
        return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
    }
    return 0;
}

double Median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

Result<Loader> OpenLoader(const TrainJob& job, const TrainLayout& layout, const OpenedData& data) {
    LoaderOptions options = data.loader;
    options.rank = layout.replica;
    options.ranks = layout.dp;
    options.global_batch = job.trainer.micro_batch * job.trainer.accumulation * layout.dp;
    options.epochs = job.steps > 0 ? 0 : static_cast<uint64_t>(job.epochs);
    return Loader::Make(*data.set, options);
}

// How many updates the epochs are: known only by walking the list, for tokenizing decides it.
Result<int64_t> CountSteps(const TrainJob& job, const cluster::Cluster& cluster,
                           const TrainLayout& layout, const OpenedData& data) {
    if (job.steps > 0) return job.steps;
    WEFT_ASSIGN(Loader loader, OpenLoader(job, layout, data));
    int64_t steps = 0;
    while (true) {
        if (cluster.stop_requested()) {
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        }
        WEFT_ASSIGN(const auto batch, loader.Next());
        if (!batch) return steps;
        ++steps;
    }
}

class Run {
  public:
    // listener: null on other ranks than 0.
    Run(const TrainJob& job, cluster::Cluster& cluster, TrainListener* listener)
        : job_(job), cluster_(cluster), listener_(listener) {
        job_.trainer.sequence = job.data.sequence;
    }

    Result<TrainSummary> All() {
        // What can be wrong with the words and the data is said before a large model is loaded.
        const TrainerOptions& t = job_.trainer;
        WEFT_ASSIGN(const TrainLayout layout, MakeTrainLayout(cluster_.size(), cluster_.rank(),
                                                              t.tp, t.pp, t.dp, t.split));
        WEFT_ASSIGN(auto source, formats::OpenModel(t.model));
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
        WEFT_ASSIGN(const OpenedData data, OpenData(*source, job_.data, hyper.vocab));
        WEFT_ASSIGN(const int64_t steps, CountSteps(job_, cluster_, layout, data));
        if (job_.schedule.total_steps == 0) job_.schedule.total_steps = steps;
        WEFT_TRY(CheckSchedule(job_.schedule));
        WEFT_ASSIGN(Loader loader, OpenLoader(job_, layout, data));
        WEFT_ASSIGN(auto trainer, Trainer::Make(t, cluster_, std::move(source)));
        if (listener_ != nullptr) listener_->OnStart(*trainer, steps);
        WEFT_TRY(Steps(*trainer, loader, steps));
        if (listener_ != nullptr) {
            const auto trained = trainer->Export();
            WEFT_TRY(listener_->OnTrained(*trained));
        } else {
            WEFT_TRY(trainer->ServeExport());
        }
        WEFT_TRY(Gather());
        return summary_;
    }

  private:
    Status Steps(Trainer& trainer, Loader& loader, int64_t steps) {
        std::vector<double> speeds;
        for (int64_t step = 1; step <= steps; ++step) {
            const int64_t begin_ns = NowNs();
            WEFT_ASSIGN(const auto batch, loader.Next());
            if (!batch) break;
            const double rate = LearningRate(job_.schedule, step - 1);
            WEFT_ASSIGN(const StepReport report, trainer.Step(*batch, rate));
            StepLine line{step,
                          steps,
                          report.loss,
                          report.grad_norm,
                          rate,
                          report.positions,
                          SecondsSince(begin_ns)};
            speeds.push_back(line.tokens_per_s());
            summary_.steps = step;
            summary_.tokens += line.tokens;
            summary_.seconds += line.seconds;
            summary_.last_loss = line.loss;
            if (listener_ != nullptr) listener_->OnStep(line);
        }
        summary_.tokens_per_s = Median(std::move(speeds));
        return {};
    }

    Status Gather() {
        WEFT_ASSIGN(const std::vector<std::string> peaks,
                    cluster_.AllGather("peak memory", std::to_string(PeakRssBytes()),
                                       Deadline::In(kAgreeMs)));
        for (const std::string& text : peaks) {
            summary_.peak_rss_bytes.push_back(std::strtoull(text.c_str(), nullptr, 10));
        }
        return {};
    }

    TrainJob job_;
    cluster::Cluster& cluster_;
    TrainListener* listener_;
    TrainSummary summary_;
};

}  // namespace

Result<TrainSummary> RunTraining(const cluster::ClusterOptions& options, const TrainJob& job,
                                 TrainListener& listener) {
    WEFT_TRY(cluster::CheckOptions(options));
    WEFT_ASSIGN(const auto cluster, cluster::Cluster::Launch(options, TrainJobToJson(job)));
    auto summary = Run(job, *cluster, &listener).All();
    if (!summary.ok()) return cluster->ReportFailure(summary.error());
    WEFT_TRY(cluster->Shutdown(Deadline::In(kShutdownMs)));
    return summary;
}

Status WorkTraining(cluster::Cluster& cluster) {
    const auto run = [&]() -> Status {
        WEFT_ASSIGN(const TrainJob job, TrainJobFromJson(cluster.job()));
        const auto summary = Run(job, cluster, nullptr).All();
        return summary.ok() ? Status() : Status(summary.error());
    };
    if (const Status status = run(); !status.ok()) return cluster.ReportFailure(status.error());
    return cluster.Shutdown(Deadline::In(kShutdownMs));
}

}  // namespace weft::train
