#include "train/log/train_log.h"

#include <cmath>
#include <filesystem>
#include <utility>

namespace weft::train {
namespace {

std::string HeadOf(const std::vector<std::string>& columns) {
    std::string head = "step";
    for (const std::string& column : columns) head += "," + column;
    return head + "\n";
}

Status MakeFolderOf(const std::string& path) {
    const auto folder = std::filesystem::path(path).parent_path();
    if (folder.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error) return {};
    return MakeError(ErrorCode::kIo, "{}: cannot make the folder: {}", folder.string(),
                     error.message());
}

}  // namespace

Result<TrainLog> TrainLog::Open(const TrainLogOptions& options) {
    for (const std::string& column : options.columns) {
        if (column.empty() || column.find_first_of(",\n\r\"") != column.npos) {
            return MakeError(ErrorCode::kUsage, "a log's column '{}'; expected a plain word",
                             column);
        }
    }
    TrainLog log(options);
    if (!options.csv.empty()) {
        WEFT_TRY(
            log.GoOn(log.csv_.emplace(options.csv, HeadOf(options.columns)), options.first_step));
    }
    const auto nothing = [](EventFile&) { return Status(); };
    const Status begun = log.AddEvents(nothing, {});
    if (!begun.ok()) log.notes_.push_back(begun.error().message);
    return log;
}

Status TrainLog::GoOn(LogFile& file, int64_t first_step) {
    if (const Status made = MakeFolderOf(file.path()); !made.ok()) {
        notes_.push_back(made.error().message);
        return {};
    }
    const auto damaged = file.GoOn(first_step);
    if (!damaged.ok() && damaged.error().code == ErrorCode::kUsage) return damaged.error();
    if (!damaged.ok()) {
        notes_.push_back(damaged.error().message);
    } else if (*damaged > 0) {
        notes_.push_back(fmt::format("{}: {} damaged line{} skipped; the others stay", file.path(),
                                     *damaged, *damaged == 1 ? " is" : "s are"));
    }
    return {};
}

int64_t TrainLog::missing() const {
    return csv_ ? csv_->waiting() + csv_->dropped() : 0;
}

// Creates a new file if the current one can't be written or was deleted.
Status TrainLog::AddEvents(const std::function<Status(EventFile&)>& add, Status kept) {
    if (options_.tensorboard.empty()) return kept;
    Status done;
    if (!events_ || events_->removed()) {
        auto created = EventFile::Create(options_.tensorboard);
        if (!created.ok()) return kept.ok() ? created.error() : kept;
        events_ = std::move(*created);
    }
    done = add(*events_);
    return kept.ok() ? done : kept;
}

Status TrainLog::Add(const LogRow& row) {
    Status status = Add(row.step, row.values);
    for (size_t i = 0; i < row.samples.size(); ++i) {
        const Status added = AddSample(row.step, i, row.samples[i].prompt, row.samples[i].text);
        if (status.ok()) status = added;
    }
    return status;
}

Status TrainLog::Add(int64_t step, std::span<const double> values) {
    WEFT_CHECK(values.size() == options_.columns.size());
    std::string line = fmt::format("{}", step);
    for (const double value : values) line += fmt::format(",{}", value);
    const Status done = csv_ ? csv_->Add(line + "\n") : Status();
    return AddEvents(
        [&](EventFile& events) -> Status {
            for (size_t i = 0; i < values.size(); ++i) {
                if (std::isnan(values[i])) continue;  // (a row without this value)
                WEFT_TRY(events.AddScalar("train/" + options_.columns[i], step, values[i]));
            }
            return {};
        },
        done);
}

Status TrainLog::AddSample(int64_t step, size_t number, std::string_view prompt,
                           std::string_view text) {
    const std::string all = std::string(prompt) + std::string(text);
    const std::string tag = fmt::format("sample/{}", number);
    return AddEvents([&](EventFile& events) { return events.AddText(tag, step, all); }, {});
}

}  // namespace weft::train
