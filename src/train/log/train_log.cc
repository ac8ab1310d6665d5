#include "train/log/train_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "model_files/hf/json.h"

namespace weft::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMostLogBytes = 1ull << 30;
constexpr size_t kMostColumns = 256;
constexpr size_t kMostRows = 10'000'000;
constexpr size_t kMostNumbers = size_t{1} << 27;  // rows times columns
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string_view> Lines(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::vector<std::string_view> Cells(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::vector<std::string_view> cells;
    for (;;) {
        const size_t comma = line.find(',');
        cells.push_back(line.substr(0, comma));
        if (comma == line.npos || cells.size() > kMostColumns) return cells;
        line.remove_prefix(comma + 1);
    }
}

// kNone if it is not a number.
double NumberOfText(std::string_view cell) {
    while (cell.starts_with(' ')) cell.remove_prefix(1);
    while (cell.ends_with(' ')) cell.remove_suffix(1);
    double value = kNone;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    return error == std::errc() && end == cell.data() + cell.size() ? value : kNone;
}

std::optional<int64_t> WholeStepOf(double value) {
    const bool whole = value >= 0 && value <= 9e15 && value == std::floor(value);
    if (!whole) return std::nullopt;
    return static_cast<int64_t>(value);
}

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
    if (!options.jsonl.empty()) {
        WEFT_TRY(log.GoOn(log.jsonl_.emplace(options.jsonl, ""), options.first_step));
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
    int64_t lines = 0;
    for (const auto* file : {&csv_, &jsonl_}) {
        if (*file) lines += (*file)->waiting() + (*file)->dropped();
    }
    return lines;
}

Status TrainLog::AddTo(std::optional<LogFile>& file, const std::string& line, Status kept) {
    const Status added = file ? file->Add(line) : Status();
    return kept.ok() ? added : kept;
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

Status TrainLog::Add(int64_t step, std::span<const double> values) {
    WEFT_CHECK(values.size() == options_.columns.size());
    std::string line = fmt::format("{}", step);
    for (const double value : values) line += fmt::format(",{}", value);
    Status done = AddTo(csv_, line + "\n", {});
    if (jsonl_) {
        OrderedJson row = {{"step", step}};
        for (size_t i = 0; i < values.size(); ++i) row[options_.columns[i]] = values[i];
        done = AddTo(jsonl_, row.dump() + "\n", done);
    }
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

Status TrainLog::AddText(int64_t step, std::string_view name, std::string_view text) {
    const OrderedJson row = {{"step", step}, {"name", name}, {"text", text}};
    const Status done =
        AddTo(jsonl_, row.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n", {});
    return AddEvents([&](EventFile& events) { return events.AddText(name, step, text); }, done);
}

Status TrainLog::AddSample(int64_t step, size_t number, std::string_view prompt,
                           std::string_view text) {
    const OrderedJson row = {{"step", step}, {"sample", {{"prompt", prompt}, {"text", text}}}};
    const Status done =
        AddTo(jsonl_, row.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n", {});
    const std::string all = std::string(prompt) + std::string(text);
    const std::string tag = fmt::format("sample/{}", number);
    return AddEvents([&](EventFile& events) { return events.AddText(tag, step, all); }, done);
}

namespace {

class SeriesReader {
  public:
    explicit SeriesReader(const std::string& path) { series_.path = path; }

    Result<TrainSeries> Run() {
        WEFT_ASSIGN(const std::string text, ReadTextFile(series_.path, kMostLogBytes));
        const auto lines = Lines(text);
        const size_t first = text.find_first_not_of(" \t\r\n");
        const bool is_json = first != text.npos && text[first] == '{';
        for (size_t i = 0; i < lines.size(); ++i) {
            line_ = i + 1;
            if (lines[i].find_first_not_of(" \t\r") == lines[i].npos) continue;
            // The last line of a killed run may be truncated, and still parse as a number.
            const bool cut = i + 1 == lines.size() && !text.ends_with('\n');
            if (cut && !is_json) continue;
            const Status added = is_json ? JsonRow(lines[i]) : CsvRow(lines[i]);
            if (!added.ok() && !cut) return added.error();
        }
        if (series_.steps.empty()) return Broken("no rows; expected a column 'step'");
        return std::move(series_);
    }

  private:
    Error Broken(std::string_view what) const {
        return MakeError(ErrorCode::kCorrupt, "{}: line {}: {}", series_.path, line_, what);
    }

    Error TooMany() const { return Broken("more than 2^27 numbers, rows times columns"); }

    Result<size_t> Column(std::string_view name) {
        const auto found = std::ranges::find(series_.columns, name);
        const auto index = static_cast<size_t>(found - series_.columns.begin());
        if (found != series_.columns.end()) return index;
        if (series_.columns.size() >= kMostColumns) return Broken("more than 256 columns");
        if (series_.steps.size() * (series_.columns.size() + 1) > kMostNumbers) return TooMany();
        series_.columns.emplace_back(name);
        series_.values.emplace_back(series_.steps.size(), kNone);
        return index;
    }

    // A row for `step`; if a step repeats (a resumed run), earlier rows from it on are removed.
    Status Row(std::optional<int64_t> step) {
        if (!step) return Broken("no step from 0 on");
        const auto at = std::ranges::lower_bound(series_.steps, *step);
        const auto kept = static_cast<size_t>(at - series_.steps.begin());
        series_.steps.resize(kept);
        for (auto& column : series_.values) column.resize(kept);
        if (kept >= kMostRows) return Broken("more than 10 million rows");
        if ((kept + 1) * series_.columns.size() > kMostNumbers) return TooMany();
        series_.steps.push_back(*step);
        for (auto& column : series_.values) column.push_back(kNone);
        return {};
    }

    Status CsvRow(std::string_view line) {
        const auto cells = Cells(line);
        if (head_.empty()) {
            for (const auto cell : cells) head_.emplace_back(cell);
            const auto step = std::ranges::find(head_, "step");
            if (step == head_.end() || head_.size() > kMostColumns) {
                return Broken("expected a head line with a column 'step'");
            }
            step_at_ = static_cast<size_t>(step - head_.begin());
            return {};
        }
        if (cells.size() != head_.size()) {
            return Broken(
                fmt::format("{} columns; the head line has {}", cells.size(), head_.size()));
        }
        WEFT_TRY(Row(WholeStepOf(NumberOfText(cells[step_at_]))));
        for (size_t i = 0; i < cells.size(); ++i) {
            if (i == step_at_) continue;
            WEFT_ASSIGN(const size_t column, Column(head_[i]));
            series_.values[column].back() = NumberOfText(cells[i]);
        }
        return {};
    }

    Status JsonRow(std::string_view line) {
        const OrderedJson row = OrderedJsonOrDiscarded(line);
        if (!row.is_object()) return Broken("not a JSON object");
        if (row.contains("text") || row.contains("sample")) return {};
        const auto step = row.find("step");
        if (step == row.end() || !step->is_number()) return Broken("no 'step'");
        WEFT_TRY(Row(WholeStepOf(step->get<double>())));
        for (const auto& [name, value] : row.items()) {
            if (name == "step" || !value.is_number()) continue;
            WEFT_ASSIGN(const size_t column, Column(name));
            series_.values[column].back() = value.get<double>();
        }
        return {};
    }

    TrainSeries series_;
    std::vector<std::string> head_;
    size_t step_at_ = 0, line_ = 0;
};

}  // namespace

Result<TrainSeries> ReadTrainLog(const std::string& path) {
    return SeriesReader(path).Run();
}

}  // namespace weft::train
