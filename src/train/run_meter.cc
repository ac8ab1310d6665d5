#include "train/run_meter.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace weft::train {
namespace {

// Peak resident memory of this process (VmHWM of /proc/self/status).
uint64_t PeakRssBytes() {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("VmHWM:")) continue;
        return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
    }
    return 0;
}

// The quantile: this share of the values lies below it.
template <typename T>
T Quantile(std::vector<T> values, double share) {
    if (values.empty()) return 0;
    const auto at = static_cast<size_t>(static_cast<double>(values.size()) * share);
    const auto found = values.begin() + static_cast<ptrdiff_t>(at);
    std::ranges::nth_element(values, found);
    return *found;
}
template <typename T>
T Quartile(std::vector<T> values) {
    return Quantile(std::move(values), 0.25);
}
double Median(std::vector<double> values) {
    return Quantile(std::move(values), 0.5);
}

}  // namespace

void RunMeter::Begin(const Trainer& trainer, const Saver& saver) {
    trainer_ = &trainer;
    saver_ = &saver;
    speeds_.clear();
    update_s_.clear();
}

RunMeter::Counters RunMeter::Read() const {
    return {NowNs(), trainer_->sent_bytes(), trainer_->waited_s(), saver_->counts().waited_s};
}

void RunMeter::BeginUpdate() {
    begin_ = Read();
}

void RunMeter::EndUpdate(StepLine& line) {
    const Counters end = Read();
    line.seconds = static_cast<double>(end.now_ns - begin_.now_ns) * 1e-9;
    speeds_.push_back(line.tokens_per_s());
    update_s_.push_back(line.seconds);
    ++updates_;
    tokens_ += line.tokens;
    seconds_ += line.seconds;
    wire_bytes_ += end.sent_bytes - begin_.sent_bytes;
    waited_s_ += end.waited_s - begin_.waited_s;
    saving_s_ += end.saving_s - begin_.saving_s;
}

void RunMeter::EndEpoch(int64_t step, uint64_t epochs) {
    updates_an_epoch_ = static_cast<double>(step) / static_cast<double>(epochs);
}

void RunMeter::Report(double updates_an_epoch, TrainSummary& summary) const {
    summary.tokens = tokens_;
    summary.seconds = seconds_;
    summary.update_s = Quartile(update_s_);
    summary.tokens_per_s = Median(speeds_);
    if (updates_an_epoch == 0) updates_an_epoch = updates_an_epoch_;
    if (updates_an_epoch == 0) updates_an_epoch = static_cast<double>(updates_);
    const double each = updates_ > 0 ? (seconds_ - saving_s_) / static_cast<double>(updates_) : 0;
    summary.epoch_s = each * updates_an_epoch;
}

// "0.000012 0 ...": seconds by op.
std::string RunMeter::OpSeconds() const {
    std::string text;
    for (const std::vector<float>& times : trainer_->op_seconds()) {
        std::vector<float> later(times.begin() + (times.empty() ? 0 : 1), times.end());
        fmt::format_to(std::back_inserter(text), "{:.4g} ", Quartile(std::move(later)));
    }
    return text;
}

Status RunMeter::Gather(cluster::Cluster& cluster, TrainSummary& summary) const {
    WEFT_ASSIGN(summary.devices, cluster.AllGather("device of a rank", trainer_->device().name,
                                                   Deadline::In(kGatherPatienceMs)));
    WEFT_TRY(AllGather(cluster, "peak memory", PeakRssBytes(), summary.peak_rss_bytes));
    WEFT_TRY(AllGather(cluster, "seconds waited", waited_s_, summary.waited_s));
    if (trainer_->options().time_ops) {
        WEFT_ASSIGN(
            const std::vector<std::string> texts,
            cluster.AllGather("seconds of ops", OpSeconds(), Deadline::In(kGatherPatienceMs)));
        for (const std::string& text : texts) {
            std::istringstream numbers(text);
            std::vector<double>& seconds = summary.op_s.emplace_back();
            for (double number = 0; numbers >> number;) seconds.push_back(number);
        }
    }
    return AllGather(cluster, "bytes sent", wire_bytes_, summary.wire_bytes);
}

}  // namespace weft::train
